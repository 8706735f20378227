import { AppError } from '../../../base/errors.ts'
import { TerminalFilter } from '../../../base/terminal-text.ts'
import { shown, shownLine } from '../../../base/visible-text.ts'
import { untilEnded, write } from '../../../cli/output.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import { type ApprovalClient, openDesk } from '../../../clients/desk.ts'
import { type LifecycleEvent, isOver, lifecycleText, runOf } from '../../../protocol/events/lifecycle.ts'
import { TRUNCATED_SUFFIX } from '../../../protocol/limits/events.ts'
import type { CliContext } from '../context.ts'
import { printNotice } from '../print.ts'
import { TerminalOutputFilter } from '../terminal/output-filter.ts'
import { wholeId } from './find-run.ts'

/** Clears the screen, because the beginning of the output is not known. */
const CLEAR = '\u001b[2J\u001b[H'
/** Characters by which output is found again in a later report. */
const ANCHOR = 512

/** The output that a report adds to the one before, or all of it if it does not follow. */
export const addedText = (before: string, now: string): { readonly text: string; readonly follows: boolean } => {
  if (now.startsWith(before)) return { text: now.slice(before.length), follows: true }
  const anchor = before.slice(-ANCHOR)
  const at = anchor.length < ANCHOR ? -1 : now.lastIndexOf(anchor)
  return at === -1 ? { text: now, follows: false } : { text: now.slice(at + anchor.length), follows: true }
}

/** Shows reports of the output so far, on a terminal as it was drawn and otherwise as text. */
class LookedOn {
  readonly #context: CliContext
  readonly #screen: TerminalOutputFilter | null
  readonly #text = new TerminalFilter()
  #before = ''

  constructor(context: CliContext) {
    this.#context = context
    this.#screen = context.stdout.isTTY === true ? new TerminalOutputFilter({ raw: false, answers: false }) : null
  }

  async show({ tail, tail_truncated }: LifecycleEvent): Promise<boolean> {
    const now = tail_truncated ? (tail ?? '').slice(0, -TRUNCATED_SUFFIX.length) : (tail ?? '')
    const { text, follows } = addedText(this.#before, now)
    this.#before = now
    if (this.#screen === null) return write(this.#context.stdout, shown(this.#text.push(text)))
    return write(this.#context.stdout, Buffer.concat([Buffer.from(follows ? '' : CLEAR), this.#screen.push(Buffer.from(text))]))
  }

  async end(): Promise<void> {
    await write(this.#context.stdout, this.#screen === null ? shown(this.#text.end()) : `${this.#screen.end()}\r\n`)
  }
}

/** Runs for other agents on this machine. */
const runsHere = async (desk: ApprovalClient): Promise<readonly LifecycleEvent[]> =>
  (await desk.follow([])).filter(({ door }) => door === 'mesh')

const found = (runs: readonly LifecycleEvent[], beginning: string): LifecycleEvent => {
  const ids = runs.map(({ run_id }) => run_id)
  if (ids.some((id) => id.startsWith(beginning))) return runs[ids.indexOf(wholeId(beginning, ids))]!
  throw new AppError('unknown_run', `no run of another agent on this machine matches ${JSON.stringify(beginning)}`, {
    data: { next: 'Try: x0x exec sessions --incoming' },
  })
}

/** `x0x exec watch ID` shows what a command of another agent shows, until its end or Ctrl-C. It types nothing. */
export const runExecWatch = async (context: CliContext, { words: [beginning = ''] }: CommandLine): Promise<number> => {
  const desk = await openDesk(context.api.paths, 'x0x exec watch')
  const looked = new LookedOn(context)
  const over = Promise.withResolvers<LifecycleEvent | AppError | null>()
  try {
    const run = found(await runsHere(desk), beginning)
    let writing = Promise.resolve(true)
    await desk.listen((news) => {
      if (news.type !== 'event' || runOf(news.event) !== runOf(run)) return
      if (news.event.type === 'exec.output') writing = writing.then(async () => looked.show(news.event))
      if (isOver(news.event)) over.resolve(news.event)
    })
    void desk.closed.then(over.resolve)
    await desk.follow([runOf(run)])
    await printNotice(context, `watching run ${shownLine(run.run_id)}; the requester is notified. Ctrl-C ends this`)
    const end = await untilEndOf(context, over)
    await writing
    await looked.end()
    if (end instanceof AppError) throw end
    if (end !== null) await printNotice(context, shownLine(lifecycleText(end)))
    return 0
  } finally {
    desk.close()
  }
}

const untilEndOf = async (
  context: CliContext,
  { promise, resolve }: PromiseWithResolvers<LifecycleEvent | AppError | null>,
): Promise<LifecycleEvent | AppError | null> => {
  await untilEnded(context, async (signal) => {
    signal.addEventListener('abort', () => resolve(null), { once: true })
    await promise
  })
  return promise
}
