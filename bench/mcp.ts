import { execFile, spawn } from 'node:child_process'
import { once } from 'node:events'
import { mkdtemp, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { promisify } from 'node:util'

import { Client } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'

import { ConsolePlace, RawClient } from '../test/support/console-place.ts'
import { mcpPlace, X0X } from '../test/support/mcp-server.ts'
import { spawnTrue } from './processes.ts'
import type { Row, Section } from './report.ts'
import type { Stage } from './stage.ts'
import { interleaved, summarize } from './stats.ts'

/** An MCP server that passes every command to a shell, as AI agents commonly use. */
const REFERENCE = 'mcp-server-commands@0.5.0'
const INSTALL_MS = 120_000
const MB = 1_000_000
/** Time for the garbage collection after the last call. */
const IDLE_MS = 3_000

type Ending = Parameters<typeof mcpPlace>[0] & Parameters<typeof ConsolePlace.make>[0]

interface Server {
  readonly client: Client
  readonly pid: number
}

const serve = async (stage: Stage, command: string, args: readonly string[]): Promise<Server> => {
  const transport = new StdioClientTransport({ command, args: [...args], stderr: 'ignore' })
  const client = new Client({ name: 'bench', version: '1' })
  await client.connect(transport)
  stage.after(async () => client.close())
  return { client, pid: transport.pid ?? 0 }
}

/** Null if the registry does not answer. The report then has no comparison. */
const serveReference = async (stage: Stage): Promise<Server | null> => {
  const dir = await mkdtemp(join(tmpdir(), 'x0x-bench-mcp-'))
  stage.after(async () => rm(dir, { recursive: true, force: true }))
  const args = ['install', '--prefix', dir, '--ignore-scripts', '--no-audit', '--no-fund', REFERENCE]
  try {
    await promisify(execFile)('npm', args, { timeout: INSTALL_MS })
  } catch {
    process.stderr.write(`${REFERENCE} could not be installed: its rows are left out\n`)
    return null
  }
  return serve(stage, process.execPath, [join(dir, 'node_modules/mcp-server-commands/build/index.js')])
}

const call = async ({ client }: Server, name: string, args: Record<string, unknown>): Promise<void> => {
  const { isError, content } = await client.callTool({ name, arguments: args })
  if (isError === true) throw new Error(JSON.stringify(content))
}

/** Proportional set size in MB. Memory shared with other processes counts in part (proc_pid_smaps(5)). */
const memoryOf = async ({ pid }: Server): Promise<number> => {
  const text = await readFile(`/proc/${pid}/smaps_rollup`, 'utf8')
  return (Number(/^Pss: +(\d+) kB$/m.exec(text)?.[1]) * 1024) / MB
}

const callRows = async (stage: Stage, ours: Server, theirs: Server | null): Promise<Row[]> => {
  const results = await interleaved(stage.plan.rounds, {
    status: async () => call(ours, 'exec_status', { command: 'true' }),
    which: async () => call(ours, 'which_command', { command: 'true' }),
    reference: async () => (theirs === null ? undefined : call(theirs, 'run_command', { command: 'true' })),
    spawned: spawnTrue,
  })
  const peer = theirs === null ? {} : { theirs: results.reference, peer: `\`run_command\` of \`${REFERENCE}\`, through a shell` }
  const limit = { limit: results.spawned, limitOf: '`/bin/true` started by Node.js' }
  return [
    { what: '`exec_status` of `true`, by `x0x mcp`', unit: 'ms', ours: results.status, ...peer, ...limit, target: '≤ 1.3' },
    { what: '`which_command` of `true`, by `x0x mcp`', unit: 'ms', ours: results.which },
  ]
}

/** Runs a command on the same kind of terminal without a console. */
const inTerminal = async (): Promise<void> => {
  await once(spawn('script', ['-qec', 'true', '/dev/null'], { stdio: 'ignore' }), 'exit')
}

const consoleRows = async (t: Ending, stage: Stage): Promise<Row[]> => {
  const place = await ConsolePlace.make(t)
  await place.host()
  const overSocket = async (): Promise<void> => {
    const client = new RawClient(place.socket)
    client.send({ whoami: 'bench', dir: '/', exec: ['true'] })
    const answer = await client.next()
    client.socket.destroy()
    if (answer?.['exit'] !== 0) throw new Error(JSON.stringify(answer))
  }
  const results = await interleaved(stage.plan.rounds, {
    socket: overSocket,
    program: async () => {
      const { status, stderr } = await place.begin(['--whoami', 'bench', '--dir', '/', '--', 'true']).ended
      if (status !== 0) throw new Error(stderr)
    },
    terminal: inTerminal,
  })
  const peer = { theirs: results.terminal, peer: '`script -qec true /dev/null`, a terminal without a viewer' } as const
  return [
    { what: '`true` in the console, over its socket', unit: 'ms', ours: results.socket, ...peer, target: '≤ 1.2' },
    { what: '`true` in the console, with `rexec`', unit: 'ms', ours: results.program, ...peer },
  ]
}

const memoryRow = async (ours: Server, theirs: Server | null): Promise<Row> => {
  await new Promise((resolve) => setTimeout(resolve, IDLE_MS))
  const [mine, other] = [await memoryOf(ours), theirs === null ? null : await memoryOf(theirs)]
  const peer = other === null ? {} : { theirs: summarize([other]), peer: `\`${REFERENCE}\`` }
  return { what: 'memory of an idle `x0x mcp`', unit: 'MB', ours: summarize([mine]), ...peer }
}

/** Compares the MCP tools with an MCP server without rules, and the console with a terminal. */
export const mcp = async (stage: Stage): Promise<Omit<Section, 'title'>> => {
  const t = { after: (ending: unknown) => stage.after(ending as () => Promise<void>) } as Ending
  const { config } = await mcpPlace(t)
  const ours = await serve(stage, process.execPath, [X0X, 'mcp', '--whoami', 'bench', '--config', config])
  const theirs = await serveReference(stage)
  const rows = [...(await callRows(stage, ours, theirs)), ...(await consoleRows(t, stage)), await memoryRow(ours, theirs)]
  const intro =
    'One client calls both servers over standard streams that are already open. `x0x mcp` has a policy, an audit log on disk and a control group for each run. The other server uses a shell. `rexec` is a new process for each command, as AI agents call it.'
  return { intro, rows }
}
