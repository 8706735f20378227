import { systemClock } from '../../../base/clock.ts'
import { AppError } from '../../../base/errors.ts'
import { shown, shownLine, visibleJson } from '../../../base/visible-text.ts'
import { Condition } from '../../../base/wait-queue.ts'
import { untilEnded, write } from '../../../cli/output.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import { isDaemonGone } from '../../../clients/daemon.ts'
import { type ApprovalClient, openDesk } from '../../../clients/desk.ts'
import { type LifecycleEvent, isHere, lifecycleProblem, lifecycleTextWithTail } from '../../../protocol/events/lifecycle.ts'
import { linesOf } from '../../../protocol/lines.ts'
import type { CliContext } from '../context.ts'
import { printJson, printNotice } from '../print.ts'

interface EventsOptions {
  /** Null for the oldest event. */
  readonly since: string | null
  /** Null for all labels. */
  readonly session: string | null
}

interface Gap {
  readonly through: number | null
}

interface EventsAnswer {
  readonly events: readonly object[]
  readonly gap: Gap | null
  readonly next: string
  readonly more: boolean
}

/** An event with its tail, each character escaped as six. */
const MAX_EVENT_LINE = 256 * 1024
const tooLong = (): Error => new RangeError(`a line is longer than ${MAX_EVENT_LINE} bytes`)

/** Events of the approval service that wait for a slow reader. Further ones are reported as a gap. */
const MAX_UNPRINTED = 256

/** Delay before a reconnect. */
const AGAIN_MS = 1_000

const gapText = ({ through }: Gap): string =>
  through === null
    ? '(events may be missing: the daemon was restarted, or there were too many)'
    : `(events up to ${through} are missing: they are no longer kept)`

const isGap = (item: object): item is Gap => 'type' in item && item.type === 'gap'

const render = (item: object): string => {
  if (isGap(item)) return gapText(item)
  const { text: _text, ...event } = item as LifecycleEvent & { readonly text?: unknown }
  if (lifecycleProblem(event) !== null) return shownLine(JSON.stringify(item))
  const [sentence = '', ...tail] = lifecycleTextWithTail(event, shown).split('\n')
  // Engines number their own events, and no client can ask for events from such a number.
  const [n, by] = event.door === 'rest' ? [event.n, ''] : ['-', `  by ${shownLine(event.owner)} (${event.door})`]
  return [`${n}  ${shownLine(event.ts)}  ${sentence}${by}`, ...tail].join('\n')
}

const printItem = async (context: CliContext, item: object): Promise<boolean> =>
  write(context.stdout, `${context.json ? visibleJson(JSON.stringify(item)) : render(item)}\n`)

const pathOf = ({ session }: EventsOptions, since: string | null): string => {
  const query = new URLSearchParams({ ...(session !== null && { session }), ...(since !== null && { since }) }).toString()
  return `/exec/events${query === '' ? '' : `?${query}`}`
}

const printKept = async (context: CliContext, options: EventsOptions): Promise<number> => {
  const all: object[] = []
  let [since, more] = [options.since, true]
  while (more) {
    const answer = await context.api.json<EventsAnswer>({ method: 'GET', path: pathOf(options, since) })
    // Events dropped while reading leave a gap between two answers.
    if (answer.gap !== null) all.push({ type: 'gap', ...answer.gap })
    all.push(...answer.events)
    ;({ next: since, more } = answer)
  }
  const [first] = all
  const gap = first !== undefined && isGap(first) ? first : null
  if (context.json)
    await printJson(context, { events: gap === null ? all : all.slice(1), gap: gap && { through: gap.through }, next: since })
  else for (const item of all) await printItem(context, item)
  return 0
}

/** The position of a reader, which it sends again after a reconnect. */
interface Reading {
  at: string | null
  /** Whether the daemon has answered since it was last lost. */
  isThere: boolean
}

/** True at the end of the stream, or false if the output has no reader. */
const printStream = async (context: CliContext, options: EventsOptions, reading: Reading, signal: AbortSignal): Promise<boolean> => {
  const headers = { accept: 'text/event-stream' }
  const body = await context.api.open({ method: 'GET', path: pathOf(options, reading.at), headers, signal })
  reading.isThere = true
  let id: string | null = null
  for await (const bytes of linesOf(body, MAX_EVENT_LINE, tooLong)) {
    const line = bytes.toString('utf8')
    if (line.startsWith('id:')) id = line.slice('id:'.length).trim()
    if (!line.startsWith('data:')) continue
    if (!(await printItem(context, JSON.parse(line.slice('data:'.length)) as object))) return false
    reading.at = id ?? reading.at
  }
  return true
}

const again = async (signal: AbortSignal): Promise<void> => new Condition().waitAtMost({ clock: systemClock, timeoutMs: AGAIN_MS, signal })

/** Follows the daemon's runs, over its restarts. `isPatient` means that other events can be printed, so a missing daemon is tolerated. */
const followDaemon = async (context: CliContext, options: EventsOptions, isPatient: boolean, signal: AbortSignal): Promise<void> => {
  const reading: Reading = { at: options.since, isThere: false }
  for (let wasThere = isPatient; !signal.aborted; wasThere = true) {
    try {
      if (!(await printStream(context, options, reading, signal))) return
    } catch (error) {
      if (signal.aborted || !isDaemonGone(error) || !(wasThere || reading.isThere)) throw error
    }
    if (reading.isThere) await printNotice(context, 'lost contact with x0xd; events continue when it is back')
    reading.isThere = false
    await again(signal)
  }
}

/** Null if there is none, or if it does not accept this user. */
const deskOf = async (context: CliContext): Promise<ApprovalClient | null> => {
  if (!context.api.isOwn) return null
  return openDesk(context.api.paths, 'x0x events').catch(() => null)
}

/** Follows runs of this host's engines. The daemon reports their runs on the mesh. */
const followDesk = async (context: CliContext, options: EventsOptions, first: ApprovalClient, signal: AbortSignal): Promise<void> => {
  for (let desk: ApprovalClient | null = first; !signal.aborted; desk = await deskOf(context)) {
    if (desk !== null) await printDesk(context, options, desk, signal)
    await again(signal)
  }
}

const printDesk = async (context: CliContext, { session }: EventsOptions, desk: ApprovalClient, signal: AbortSignal): Promise<void> => {
  const close = (): void => desk.close()
  signal.addEventListener('abort', close, { once: true })
  let [waiting, isBehind] = [0, false]
  const print = (item: object): void => {
    waiting += 1
    void printItem(context, item).finally(() => (waiting -= 1))
  }
  const listening = desk.listen((news) => {
    if (news.type !== 'event' || !isHere(news.event) || (session !== null && news.event.session !== session)) return
    if (waiting >= MAX_UNPRINTED) isBehind = true
    else {
      if (isBehind) print({ type: 'gap', through: null })
      isBehind = false
      print(news.event)
    }
  })
  await listening.catch(close)
  const why = await desk.closed
  signal.removeEventListener('abort', close)
  if (!signal.aborted) await printNotice(context, `${shownLine(why.message)}; events of programs on this machine may be missing`)
}

/** `x0x events` prints events of runs that this daemon requested. With `follow`, also those of local engines, until it is ended. */
export const runEvents = async (context: CliContext, line: CommandLine): Promise<number> => {
  const options = { since: sinceOf(line.value('since')), session: line.value('session') }
  if (!line.has('follow')) return printKept(context, options)
  return untilEnded(context, async (signal) => {
    const desk = await deskOf(context)
    const over = new AbortController()
    const ended = AbortSignal.any([signal, over.signal])
    const beside = desk === null ? Promise.resolve() : followDesk(context, options, desk, ended)
    try {
      await followDaemon(context, options, desk !== null, ended)
    } finally {
      over.abort()
      await beside
    }
  })
}

/** Throws `bad_request` for an invalid event number. */
const sinceOf = (text: string | null): string | null => {
  if (text === null || /^([0-9a-f]{12}\.)?[0-9]{1,15}$/.test(text)) return text
  throw new AppError('bad_request', `--since must be the number of an event, not ${JSON.stringify(text)}`)
}
