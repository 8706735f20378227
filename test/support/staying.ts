import { execFile } from 'node:child_process'
import { mkdir, readdir, readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { TestContext } from 'node:test'

import { mcpPlace, startMcp, X0X, type McpOptions, type McpPlace, type McpServer, type McpSettings } from './mcp-server.ts'

/** A configuration by which commands may stay, and a home in which the keeper has its files. */
export interface StayingPlace extends McpPlace {
  readonly home: string
  readonly env: Readonly<Record<string, string>>
  /** Where the keepers of this home have their files. */
  readonly keepers: string
}

export const DEFAULT_WHOAMI = 'a test'

/** Runs `x0x mcp` with flags, to its end. */
export const runMcp = async (
  { config, env }: Pick<StayingPlace, 'config' | 'env'>,
  flags: readonly string[],
  whoami = DEFAULT_WHOAMI,
): Promise<{ readonly status: number; readonly stdout: string; readonly stderr: string }> =>
  new Promise((resolve) => {
    const args = [X0X, 'mcp', '--whoami', whoami, '--config', config, ...flags]
    execFile(process.execPath, args, { env: { ...process.env, ...env } }, (error, stdout, stderr) =>
      resolve({ status: error === null ? 0 : Number(error.code), stdout, stderr }),
    )
  })

/** Ends whatever keeper runs there when the test is over, and only then takes the place away. */
export const stayingPlace = async (t: Pick<TestContext, 'after'>, settings: McpSettings = {}): Promise<StayingPlace> => {
  const removals: (() => unknown)[] = []
  const security = `allow_detach = true\n${settings.security ?? ''}`
  const place = await mcpPlace({ after: (work) => void removals.push(work as () => unknown) }, { ...settings, security })
  const home = join(place.dir, 'home')
  await mkdir(home, { mode: 0o700 })
  const whole = { ...place, home, env: { HOME: home }, keepers: join(home, '.local', 'state', 'x0x-mcp') }
  t.after(async () => {
    for (const pid of await keeperPids(whole)) endProcess(pid)
    await runMcp(whole, ['--end-kept'])
    for (const removal of removals) await removal()
  })
  return whole
}

const endProcess = (pid: number): void => {
  try {
    process.kill(pid, 'SIGTERM')
  } catch {
    // It has ended by itself.
  }
}

/** The processes that say that they are a keeper of this home. */
export const keeperPids = async ({ keepers }: StayingPlace): Promise<number[]> => {
  const names = (await readdir(keepers).catch(() => [])).filter((name) => name.endsWith('.pid'))
  const texts = await Promise.all(names.map(async (name) => readFile(join(keepers, name), 'utf8').catch(() => '')))
  return texts.filter((text) => text !== '').map((text) => Number(text.split(' ')[0]))
}

export const startStaying = async (t: TestContext, place: StayingPlace, options: McpOptions = {}): Promise<McpServer> =>
  startMcp(t, {}, { ...options, place, env: { ...place.env, ...options.env } })

/** Rows of `exec_list`. */
export const listed = async (server: McpServer): Promise<Record<string, unknown>[]> =>
  ((await server.ask('exec_list')).structuredContent as { runs: Record<string, unknown>[] }).runs
