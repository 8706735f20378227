import { plainText } from '../../../base/visible-text.ts'
import { desktopNotice } from '../../../process/desktop-notice.ts'
import type { PendingQuestion } from '../../../protocol/desk.ts'
import type { CliContext } from '../context.ts'

/** Questions within this time are one notice: the window has them all. */
const APART_MS = 2_000
const MAX_NOTICE = 160
const TITLE = 'x0x: a command waits for you'

/** Printable ASCII and no semicolon, which would begin another field of the terminal's sequence. */
const noticeOf = ({ question: { asker, executable } }: PendingQuestion): string =>
  plainText(`${asker.kind === 'local' ? asker.label : asker.agent_id.slice(0, 8)} asks for ${executable}`)
    .replaceAll(';', ',')
    .slice(0, MAX_NOTICE)

/** Tells of each question once: the desktop, else the terminal (OSC 9 and the bell), else nobody. */
export const questionNotices = (context: CliContext): ((pending: PendingQuestion) => void) => {
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
