import type { Readable } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { errorText, isAppError } from '../../../base/errors.ts'
import { counted } from '../../../base/format.ts'
import { plainText, shownSentence, visibleJson } from '../../../base/visible-text.ts'
import { type Output, untilEnded, write } from '../../../cli/output.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import { type ApprovalClient, type ApprovalServiceEvent, type PendingApprovals, openDesk } from '../../../clients/desk.ts'
import { countdown, questionLines } from '../../../clients/approval-text.ts'
import { desktopNotice } from '../../../process/desktop-notice.ts'
import type { Flood, PendingApprovalRequest } from '../../../protocol/desk/messages.ts'
import { unallowable } from '../../../protocol/desk/approval-request-size.ts'
import type { Decision } from '../../../protocol/desk/approval-request.ts'
import { OPAQUE_GRANT_MS } from '../../../protocol/limits/approvals.ts'
import type { CliContext } from '../context.ts'
import { printLine } from '../print.ts'
import { isAtTerminal } from '../prompts.ts'
import { asLate, deskPathsOf } from './approvals.ts'

/** Requests within this time share one notification. */
const APART_MS = 2_000
const MAX_NOTICE = 160
const TITLE = 'x0x: a command needs your approval'

/** Printable ASCII without semicolons, which would start another field of the terminal sequence. */
const noticeOf = ({ question: { asker, executable } }: PendingApprovalRequest): string =>
  plainText(`${asker.kind === 'local' ? asker.label : asker.agent_id.slice(0, 8)} requests ${executable}`)
    .replaceAll(';', ',')
    .slice(0, MAX_NOTICE)

/** Notifies about each request once: on the desktop, otherwise on the terminal (OSC 9 and the bell), otherwise not. */
export const questionNotices = (context: CliContext): ((pending: PendingApprovalRequest) => void) => {
  const told = new Set<string>()
  let last = -APART_MS
  return (pending) => {
    if (told.has(pending.question_id)) return
    told.add(pending.question_id)
    const now = performance.now()
    if (now - last < APART_MS) return
    last = now
    const text = noticeOf(pending)
    if (desktopNotice(TITLE, text, context.env) || context.stdout.isTTY !== true || context.json) return
    context.stdout.write(`\u001b]9;${TITLE}: ${text}\u0007\u0007`)
  }
}

/** How long a request must be visible before a key decides it, because earlier keys were meant for another one. */
const READABLE_MS = 700
const TICK_MS = 1_000
const [BELL, CLEAR_LINE] = ['\u0007', '\r\u001b[K']
const [CTRL_C, CTRL_D] = ['\u0003', '\u0004']

const KEYS: Readonly<Record<string, Decision>> = { a: 'allow_once', A: 'allow_always', d: 'deny' }
const DONE: Readonly<Record<Decision, string>> = { allow_once: 'allowed once', allow_always: 'allowed from now on', deny: 'denied' }

/** The key for `always`. An opaque command may do something else in each run, so it is allowed for hours only. */
const alwaysKey = ({ decisions, question: { opaque } }: PendingApprovalRequest): string =>
  decisions.includes('allow_always') ? (opaque === null ? 'A always  ' : `A for ${OPAQUE_GRANT_MS / 3_600_000} h  `) : ''

interface PromptInit {
  readonly stdin: Readable
  readonly stdout: Output
  readonly bell: boolean
  /** Called for `q` or Ctrl-C. */
  readonly end: () => void
}

interface ShownRequest {
  readonly pending: PendingApprovalRequest
  readonly sinceMs: number
  /** Whether a decision was sent and not answered yet. */
  deciding: boolean
}

/** Shows one request at a time at a terminal, oldest first, and decides it by a key. */
export class ApprovalPrompt {
  readonly #init: PromptInit
  readonly #waiting = new Map<string, PendingApprovalRequest>()
  readonly #later = new Set<string>()
  readonly #floods = new Map<string, Flood>()
  #desk: ApprovalClient | null = null
  #shown: ShownRequest | null = null
  #timer: NodeJS.Timeout | null = null

  constructor(init: PromptInit) {
    this.#init = init
  }

  start(): void {
    const { stdin } = this.#init
    const { setRawMode } = stdin as { setRawMode?: (raw: boolean) => unknown }
    setRawMode?.call(stdin, true)
    stdin.on('data', this.#typed)
    this.#timer = setInterval(() => this.#prompt(), TICK_MS)
  }

  stop(): void {
    const { stdin } = this.#init
    if (this.#timer !== null) clearInterval(this.#timer)
    stdin.off('data', this.#typed)
    const { setRawMode } = stdin as { setRawMode?: (raw: boolean) => unknown }
    setRawMode?.call(stdin, false)
    stdin.pause()
  }

  begin(desk: ApprovalClient, { questions, floods }: PendingApprovals): void {
    this.#desk = desk
    this.#shown = null
    this.#waiting.clear()
    for (const question of questions) this.#waiting.set(question.question_id, question)
    for (const flood of floods) this.#floods.set(flood.asker, flood)
    this.#next()
  }

  news(news: ApprovalServiceEvent): void {
    if (news.type === 'question') this.#waiting.set(news.question_id, news)
    else if (news.type === 'flood') this.#floods.set(news.asker, news)
    else if (news.type === 'settled') this.#settled(news)
    this.#next()
  }

  lost(why: Error): void {
    this.#desk = null
    this.#shown = null
    this.#waiting.clear()
    this.#say(`${shownSentence(why.message)}; looking for it again`)
    this.#prompt()
  }

  #settled({ question_id: id, decision, by }: Extract<ApprovalServiceEvent, { type: 'settled' }>): void {
    this.#waiting.delete(id)
    this.#later.delete(id)
    if (this.#shown?.pending.question_id !== id || this.#shown.deciding) return
    this.#shown = null
    this.#say(shownSentence(`${decision}, by ${by}: ${id}`))
  }

  /** Shows the oldest request that was not skipped, unless one is shown. */
  #next(): void {
    const oldest = [...this.#waiting.values()]
      .filter(({ question_id: id }) => !this.#later.has(id))
      .sort((one, other) => one.asked_at_ms - other.asked_at_ms)[0]
    if (this.#shown === null && oldest !== undefined) {
      this.#shown = { pending: oldest, sinceMs: Date.now(), deciding: false }
      this.#say([oldest.question_id, ...questionLines(oldest.question, this.#init.stdout.columns)].join('\n'))
      if (this.#init.bell) this.#init.stdout.write(BELL)
      setTimeout(() => this.#prompt(), READABLE_MS + 1).unref()
    }
    this.#prompt()
  }

  /** A chunk of more than one key was pasted, or typed before anything could be read, so it decides nothing. */
  readonly #typed = (chunk: Buffer | string): void => {
    const key = chunk.toString()
    if (key === 'q' || key.includes(CTRL_C) || key.includes(CTRL_D)) return this.#init.end()
    const decision = Object.hasOwn(KEYS, key) ? KEYS[key] : undefined
    if (key === 's') this.#putOff()
    else if (decision !== undefined && this.#mayDecide(decision)) void this.#decide(decision)
  }

  #mayDecide(decision: Decision): boolean {
    const shown = this.#shown
    if (shown === null || shown.deciding || Date.now() - shown.sinceMs < READABLE_MS) return false
    if (decision === 'deny') return true
    if (unallowable(shown.pending.question) !== null) return false
    return shown.pending.decisions.includes(decision)
  }

  #putOff(): void {
    if (this.#shown === null) this.#later.clear()
    else if (this.#shown.deciding) return
    else this.#later.add(this.#shown.pending.question_id)
    this.#shown = null
    this.#next()
  }

  async #decide(decision: Decision): Promise<void> {
    const [shown, desk] = [this.#shown, this.#desk]
    if (shown === null || desk === null) return
    shown.deciding = true
    const { question_id: id, question } = shown.pending
    let isOver = true
    try {
      const { grant_id: grant } = await desk.decide({ question_id: id, permit_sha256: question.permit_sha256, decision })
      this.#say(`${DONE[decision]}: ${id}${grant === null ? '' : `, as ${grant}`}`)
    } catch (error) {
      // A request that the service did not accept a decision for, for another reason, is still pending.
      isOver = isAppError(error, 'conflict') || isAppError(error, 'not_found')
      this.#say(shownSentence(errorText(asLate(error))))
    }
    if (isOver) this.#waiting.delete(id)
    if (this.#shown === shown) this.#shown = null
    this.#next()
  }

  #say(text: string): void {
    this.#init.stdout.write(`${CLEAR_LINE}${text}\n`)
  }

  #prompt(): void {
    this.#init.stdout.write(`${CLEAR_LINE}${this.#line().slice(0, (this.#init.stdout.columns ?? 80) - 1)}`)
  }

  #line(): string {
    const denied = [...this.#floods.values()].reduce((sum, { count }) => sum + count, 0)
    const flood = denied === 0 ? '' : `  (${counted(denied, 'request')} denied: too many at once)`
    const later = this.#later.size === 0 ? '' : `  ${this.#later.size} later`
    const shown = this.#shown
    if (shown === null)
      return `no ${this.#later.size === 0 ? 'open requests' : 'other open requests; s shows the postponed ones'}  q quit${later}${flood}`
    const others = this.#waiting.size - this.#later.size - 1
    const keys =
      shown.deciding || Date.now() - shown.sinceMs < READABLE_MS ? '…' : `a once  ${alwaysKey(shown.pending)}d deny  s later  q quit`
    return `${countdown(shown.pending.expires_at_ms, Date.now())}  ${keys}${others > 0 ? `  ${others} more` : ''}${later}${flood}`
  }
}

/** Interval of attempts to reach a lost approval service. */
const AGAIN_MS = 1_000

/** Handles the events of the approval service. */
interface Window {
  begin(desk: ApprovalClient, waiting: PendingApprovals): void
  news(news: ApprovalServiceEvent): void
  lost(why: Error): void
}

const newsLines = (news: ApprovalServiceEvent): string[] => {
  switch (news.type) {
    case 'question':
      return [`${news.question_id}   x0x approvals approve|deny ${news.question_id}`, ...questionLines(news.question, Infinity), '']
    case 'settled':
      return [`${news.question_id}   ${shownSentence(`${news.decision}, by ${news.by}`)}`]
    case 'flood':
      return [shownSentence(`denied: ${counted(news.count, 'request')} more of ${news.asker}, which asks too often`)]
    case 'event':
      return []
  }
}

/** Without a terminal: prints pending and new requests as lines, and decides nothing. */
const lineWindow = (context: CliContext): Window => {
  const told = new Set<string>()
  const tell = (news: ApprovalServiceEvent): void => {
    if (news.type === 'question') {
      if (told.has(news.question_id)) return
      told.add(news.question_id)
    } else if (news.type === 'settled') told.delete(news.question_id)
    const lines = context.json ? [visibleJson(JSON.stringify(news))] : newsLines(news)
    if (lines.length > 0) void write(context.stdout, `${lines.join('\n')}\n`)
  }
  return {
    begin: (_desk, { questions, floods }) => {
      for (const question of questions) tell({ type: 'question', ...question })
      for (const flood of floods) tell({ type: 'flood', ...flood })
    },
    news: tell,
    lost: (why) => void write(context.stderr, `x0x: ${shownSentence(why.message)}; looking for it again\n`),
  }
}

/** The same handler, with notifications. */
const noticing = (window: Window, notice: (pending: PendingApprovalRequest) => void): Window => ({
  begin: (desk, waiting) => {
    window.begin(desk, waiting)
    waiting.questions.forEach(notice)
  },
  news: (news) => {
    window.news(news)
    if (news.type === 'question') notice(news)
  },
  lost: (why) => window.lost(why),
})

/** Events that arrive before the answer to `subscribe` are handled after it. */
const attend = async (desk: ApprovalClient, window: Window): Promise<void> => {
  const early: ApprovalServiceEvent[] = []
  let begun = false
  const waiting = await desk.subscribe((news) => (begun ? window.news(news) : early.push(news)))
  window.begin(desk, waiting)
  begun = true
  for (const news of early) window.news(news)
}

/** Follows the approval service and its successors until the signal. Throws if none runs at the first attempt. */
const follow = async (context: CliContext, window: Window, signal: AbortSignal): Promise<void> => {
  const paths = deskPathsOf(context)
  for (let first = true; !signal.aborted; first = false) {
    try {
      const desk = await openDesk(paths, 'x0x approvals watch')
      const leave = (): void => desk.close()
      signal.addEventListener('abort', leave, { once: true })
      await attend(desk, window)
      const why = await desk.closed
      signal.removeEventListener('abort', leave)
      if (!signal.aborted) window.lost(why)
    } catch (error) {
      if (signal.aborted) return
      if (first || !isAppError(error, 'daemon_unreachable')) throw error
    }
    await sleep(AGAIN_MS, undefined, { signal }).catch(() => undefined)
  }
}

/** `x0x approvals watch`: an approval client, operated by keys. */
export const runWatch = async (context: CliContext, line: CommandLine): Promise<number> =>
  untilEnded(context, async (signal) => {
    const withNotices = (window: Window): Window => (line.has('notify') ? noticing(window, questionNotices(context)) : window)
    if (context.json || !isAtTerminal(context)) return follow(context, withNotices(lineWindow(context)), signal)
    const ending = new AbortController()
    const prompt = new ApprovalPrompt({ stdin: context.stdin, stdout: context.stdout, bell: line.has('bell'), end: () => ending.abort() })
    prompt.start()
    try {
      await follow(context, withNotices(prompt), AbortSignal.any([signal, ending.signal]))
    } finally {
      prompt.stop()
      await printLine(context, '')
    }
  })
