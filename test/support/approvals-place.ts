import { spawn, type ChildProcess } from 'node:child_process'
import { once } from 'node:events'
import { appendFile } from 'node:fs/promises'
import type { TestContext } from 'node:test'

import { openDesk, type ApprovalClient, type ApprovalServiceEvent } from '../../src/clients/desk.ts'
import { pathsIn, type DataPaths } from '../../src/clients/paths.ts'
import type { ModeOverride, PendingApprovalRequest } from '../../src/protocol/desk/messages.ts'
import type { Decision } from '../../src/protocol/desk/approval-request.ts'
import { mcpPlace, startMcp, X0X, type McpServer, type McpSettings } from './mcp-server.ts'
import { until } from './mesh-of-daemons.ts'
import { tempDir } from './temp-dir.ts'

/** An approval client whose decisions the test makes. */
export interface Human {
  readonly desk: ApprovalClient
  readonly news: readonly ApprovalServiceEvent[]
  /** Returns the next approval request that this approver has not seen yet. */
  question(): Promise<PendingApprovalRequest>
  decide(question: PendingApprovalRequest, decision: Decision): Promise<{ readonly grant_id: string | null }>
  close(): void
}

/** A running `x0x desk`. */
export interface DeskProcess {
  readonly paths: DataPaths
  readonly child: ChildProcess
  said(): string
  /** Connects the client of an approver. */
  human(name?: string): Promise<Human>
  /** Sets the execution modes of the agent with this label. */
  modes(agent: string, modes: Partial<ModeOverride>): Promise<void>
  stop(signal?: NodeJS.Signals): Promise<void>
}

const humanAt = async (t: TestContext, paths: DataPaths, name: string): Promise<Human> => {
  const desk = await openDesk(paths, name)
  t.after(() => desk.close())
  const [news, given]: [ApprovalServiceEvent[], Set<string>] = [[], new Set()]
  const waiting: PendingApprovalRequest[] = []
  const { questions } = await desk.subscribe((one) => {
    news.push(one)
    if (one.type === 'question') waiting.push(one)
  })
  waiting.unshift(...questions)
  return {
    desk,
    news,
    question: async () => {
      const question = await until('a question', () => waiting.find(({ question_id }) => !given.has(question_id)) ?? null)
      given.add(question.question_id)
      return question
    },
    decide: async ({ question_id, question: { permit_sha256 } }, decision) => desk.decide({ question_id, permit_sha256, decision }),
    close: () => desk.close(),
  }
}

export const startDesk = async (t: TestContext, flags: readonly string[] = []): Promise<DeskProcess> => {
  const dir = await tempDir(t)
  const paths = pathsIn(dir)
  const child = spawn(process.execPath, [X0X, 'desk', '--data-dir', dir, ...flags], { stdio: ['ignore', 'pipe', 'pipe'] })
  let said = ''
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (part: Buffer) => (said += part.toString()))
  const ended = once(child, 'close')
  const stop = async (signal: NodeJS.Signals = 'SIGTERM'): Promise<void> => {
    if (child.exitCode === null && child.signalCode === null) child.kill(signal)
    await ended
  }
  t.after(async () => stop())
  await until('the desk', async () => {
    if (child.exitCode !== null) throw new Error(`x0x desk ended: ${said}`)
    return openDesk(paths, 'a test').then(
      (desk) => (desk.close(), true),
      () => false,
    )
  })
  const modes = async (agent: string, some: Partial<ModeOverride>): Promise<void> => {
    const desk = await openDesk(paths, 'a test')
    await desk.setModes(agent, { host: null, security: null, ask: null, node: null, elevated: null, ...some })
    desk.close()
  }
  return { paths, child, said: () => said, human: async (name = 'a human') => humanAt(t, paths, name), modes, stop }
}

/** An AI agent's MCP server. Its commands run on this machine, and wait for an approver unless a list names them. */
export const askingMcp = async (
  t: TestContext,
  desk: Pick<DeskProcess, 'paths'>,
  {
    modes = {},
    more = '',
    env = {},
    ...settings
  }: McpSettings & {
    readonly modes?: Readonly<Record<string, string>>
    readonly more?: string
    readonly env?: Readonly<Record<string, string>>
  } = {},
  whoami = 'reviewer',
): Promise<McpServer> => {
  const place = await mcpPlace(t, settings)
  const exec = Object.entries({ host: 'gateway', security: 'allowlist', ask: 'on-miss', ...modes })
  await appendFile(place.config, `\n[tools.exec]\n${exec.map(([key, value]) => `${key} = ${JSON.stringify(value)}\n`).join('')}${more}\n`)
  return startMcp(t, {}, { place, whoami, env: { ...env, X0X_DATA_DIR: desk.paths.dir } })
}
