import { systemClock, within } from '../../base/clock.ts'
import { AppError, errorText } from '../../base/errors.ts'
import { absolutePath } from '../../base/home.ts'
import { type Logger, createLogger } from '../../base/log.ts'
import type { Environment } from '../../base/runtime.ts'
import { logStopFailures, stopConditions } from '../../cli/exit.ts'
import { askRules } from '../../clients/rules.ts'
import { type RexdConfig, loadRexdConfig } from '../../config/rexd-config.ts'
import { RuleTools } from '../../doors/mcp/rule-tools.ts'
import { type McpOffer, serveMcp } from '../../doors/mcp/server.ts'
import { instructionsFor, toolsFor } from '../../doors/mcp/tools.ts'
import { LineRecorder, RecordDigest } from '../../doors/tools/tool-run-recorder.ts'
import { filesProblem } from '../../fs/open-file.ts'
import { AppendedFile } from '../../journal/file.ts'
import { LifecycleLog } from '../../protocol/events/event-log.ts'
import { jsonText } from '../../protocol/lines.ts'
import { CAPABILITY_GROUPS, CAPABILITY_NAMES, type Capability } from '../../protocol/rexd/fields.ts'
import { MAX_RECORD, type RecordLine } from '../../protocol/tool-record.ts'
import { daemonApi, startLocalExecutor } from '../../supervision/local-executor.ts'
import type { McpFlags } from './flags.ts'
import { writableRules } from './own-files.ts'

/** How long a start waits for a target's rules, because the client waits too. The client is notified of tools that come later. */
const RULES_START_MS = 8_000

/** Capabilities that tools can use. Their commands end with the session and have no terminal. */
export const FOR_TOOLS = CAPABILITY_NAMES.filter((name) => name !== 'exec.detach' && name !== 'pty')

/** The tools without a target's rules, for the granted capabilities. */
export const plainOffer = (granted: ReadonlySet<Capability>): McpOffer => {
  const tools = toolsFor(granted)
  return { tools, source: null, instructions: instructionsFor(tools) }
}

/**
 * One tool for each command of a target. Throws `bad_config` if the configuration does not allow asking it, or if the daemon does not know
 * the agent.
 */
export const ruleOffer = async (
  target: string,
  { policy, path }: Pick<RexdConfig, 'policy' | 'path'>,
  { env, log, ended }: { readonly env: Environment; readonly log: Logger; readonly ended: AbortSignal },
): Promise<McpOffer> => {
  if (!policy.granted.has('exec') || !policy.granted.has('target') || (policy.targets !== null && !policy.targets.includes(target)))
    throw new AppError('bad_config', `--rules: ${path} does not allow this target: add ${JSON.stringify(target)} to security.allow_targets`)
  const api = daemonApi(env)
  const source = new RuleTools(
    { ask: async (signal) => askRules(api, target, AbortSignal.any([signal, ended])), clock: systemClock },
    target,
  )
  const { rules, fixed } = source
  await within(systemClock, RULES_START_MS, rules.refresh())
  const { problem, code, commands } = rules.known
  if (code === 'unknown_agent' || code === 'ambiguous_agent')
    throw new AppError('bad_config', `--rules: ${problem ?? ''}\n  Try: x0x contacts list`)
  if (problem !== null) log.warn({ target, problem }, 'the target did not say which commands it allows')
  else if (commands.length === 0) log.warn({ target }, 'the target does not list commands for this agent: see x0x acl mine')
  return { tools: fixed, source, instructions: source.instructions }
}

/** Bytes of lines that wait for the disk. Above this, the record ends as incomplete. */
const MAX_HELD = 16 * 1024 * 1024

const LAST: Readonly<Record<'full' | 'slow', string>> = {
  full: `a record has at most ${MAX_RECORD} bytes`,
  slow: 'the disk did not keep up',
}

/**
 * The file of a record. When it cannot continue, it says so in its last line, and the server goes on without it. Only `close` writes the
 * line `end`, and never after a failed write, so a record without that line is incomplete.
 */
export class RecordFile {
  readonly #file: AppendedFile
  readonly #log: Logger
  #queue: Buffer[] = []
  #held = 0
  #total = 0
  #ended = false
  #failed = false
  readonly #digest = new RecordDigest()
  #writing: Promise<void> | null = null

  private constructor(file: AppendedFile, log: Logger) {
    this.#file = file
    this.#log = log
  }

  /** Throws `conflict` if the file exists. */
  static async create(path: string, log: Logger): Promise<RecordFile> {
    return new RecordFile(await AppendedFile.create(path), log)
  }

  /** Queues a line without waiting. */
  write(line: Buffer): void {
    if (this.#ended) return
    this.#total += line.length
    if (this.#total > MAX_RECORD) this.#end('full')
    else if (this.#held + line.length > MAX_HELD) this.#end('slow')
    else this.#keep(line)
  }

  /** Writes the last line and waits for the disk. */
  async close(): Promise<void> {
    this.#ended = true
    if (!this.#failed) this.#keepLine({ event: 'end', ...this.#digest.value() })
    while (this.#writing !== null) await this.#writing
    await this.#file.close()
  }

  #end(why: keyof typeof LAST): void {
    this.#ended = true
    this.#log.warn({ file: this.#file.path }, `the record is not complete: ${LAST[why]}`)
    this.#keepLine({ event: 'incomplete', reason: LAST[why] })
  }

  #keepLine(line: RecordLine): void {
    this.#keep(Buffer.from(`${jsonText(line)}\n`))
  }

  #keep(line: Buffer): void {
    this.#digest.add(line.subarray(0, -1))
    this.#queue.push(line)
    this.#held += line.length
    this.#writing ??= this.#write()
  }

  async #write(): Promise<void> {
    // Lines of the same turn are written together.
    await Promise.resolve()
    try {
      while (this.#queue.length > 0) {
        const bytes = Buffer.concat(this.#queue)
        this.#queue = []
        await this.#file.append(bytes)
        this.#held -= bytes.length
      }
    } catch (error) {
      this.#ended = true
      this.#failed = true
      this.#queue = []
      this.#log.warn({ file: this.#file.path, err: errorText(error) }, 'the record is not complete: it cannot be written')
    }
    this.#writing = null
  }
}

/** The granted capabilities, without files if the system cannot hold a directory open. */
const grantedHere = (granted: ReadonlySet<Capability>): ReadonlySet<Capability> =>
  filesProblem() === null ? granted : new Set([...granted].filter((one) => !CAPABILITY_GROUPS.fs.some((file) => file === one)))

/** Serves standard input and output until they end, and returns the exit status. */
export const serve = async (flags: Extract<McpFlags, { mode: 'serve' }>, env: Environment): Promise<number> => {
  const { whoami, config: file, answerWithinMs, record: path, rules } = flags
  const { config, warnings } = await loadRexdConfig(file, env)
  const [problem] = writableRules(config, path === null ? null : absolutePath('--record', path))
  if (problem !== undefined) throw new AppError('bad_config', problem)
  const log = createLogger({ name: 'x0x-mcp', level: config.log_level })
  for (const warning of warnings) log.warn(warning)
  const ending = new AbortController()
  const told = new LifecycleLog({ id: whoami, now: () => systemClock.now() })
  const offer =
    rules === null ? plainOffer(grantedHere(config.policy.granted)) : await ruleOffer(rules, config, { env, log, ended: ending.signal })
  const record = path === null ? null : await RecordFile.create(path, log)
  const recorder = record && new LineRecorder({ clock: systemClock, write: (line) => record.write(line) }, { whoami })
  const stop = stopConditions(log, { untilEof: false })
  const local = await startLocalExecutor({ ...config, name: 'x0x mcp' }, env, log)
  try {
    const components = { input: process.stdin, output: process.stdout, executor: local.executor, clock: systemClock, log, told }
    const caller = { door: 'mcp' as const, client_name: whoami, available: FOR_TOOLS }
    const answerWithin = answerWithinMs ?? config.answer_within_ms
    await serveMcp(components, { caller, answerWithinMs: answerWithin, offer, recorder }, stop.signal)
  } finally {
    ending.abort()
    logStopFailures(log, await local.stop())
    await record?.close()
  }
  return stop.status() ?? 0
}
