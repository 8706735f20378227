import { setTimeout as sleep } from 'node:timers/promises'
import { counted } from '../../../base/counted.ts'
import { isAppError } from '../../../base/errors.ts'
import { shownSentence, visibleJson } from '../../../base/visible-text.ts'
import type { CommandLine } from '../../../cli/parse.ts'
import { type DeskHuman, type DeskNews, type Waiting, openDesk } from '../../../clients/desk-human.ts'
import { questionLines } from '../../../clients/question-text.ts'
import type { PendingQuestion } from '../../../protocol/desk.ts'
import { untilEnded, write } from '../../../supervision/program-output.ts'
import { isAtTerminal } from '../confirm.ts'
import type { CliContext } from '../context.ts'
import { printLine } from '../print.ts'
import { deskPathsOf } from './approvals.ts'
import { questionNotices } from './question-notice.ts'
import { QuestionPrompt } from './question-prompt.ts'

/** How soon a desk that went away is looked for again. */
const AGAIN_MS = 1_000

/** What a window does with what the desk tells. */
interface Window {
  begin(desk: DeskHuman, waiting: Waiting): void
  news(news: DeskNews): void
  lost(why: Error): void
}

const newsLines = (news: DeskNews): string[] => {
  switch (news.type) {
    case 'question':
      return [`${news.question_id}   x0x approvals approve|deny ${news.question_id}`, ...questionLines(news.question, Infinity), '']
    case 'settled':
      return [`${news.question_id}   ${shownSentence(`${news.decision}, by ${news.by}`)}`]
    case 'flood':
      return [shownSentence(`denied: ${counted(news.count, 'question')} more of ${news.asker}, who asks too much`)]
    case 'event':
      return []
  }
}

/** Without a terminal: what waits and what comes, as lines; nothing is decided here. */
const lineWindow = (context: CliContext): Window => {
  const told = new Set<string>()
  const tell = (news: DeskNews): void => {
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

/** The same window, and a notice of each question. */
const noticing = (window: Window, notice: (pending: PendingQuestion) => void): Window => ({
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

/** What comes while the desk still answers `subscribe` waits for that answer. */
const attend = async (desk: DeskHuman, window: Window): Promise<void> => {
  const early: DeskNews[] = []
  let begun = false
  const waiting = await desk.subscribe((news) => (begun ? window.news(news) : early.push(news)))
  window.begin(desk, waiting)
  begun = true
  for (const news of early) window.news(news)
}

/** Until the signal: the desk of now, and after it the next one. Throws where there was none from the beginning. */
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

/** `x0x approvals watch`: a window of a human, who decides by keys. */
export const runWatch = async (context: CliContext, line: CommandLine): Promise<number> =>
  untilEnded(context, async (signal) => {
    const withNotices = (window: Window): Window => (line.has('notify') ? noticing(window, questionNotices(context)) : window)
    if (context.json || !isAtTerminal(context)) return follow(context, withNotices(lineWindow(context)), signal)
    const ending = new AbortController()
    const prompt = new QuestionPrompt({ stdin: context.stdin, stdout: context.stdout, bell: line.has('bell'), end: () => ending.abort() })
    prompt.start()
    try {
      await follow(context, withNotices(prompt), AbortSignal.any([signal, ending.signal]))
    } finally {
      prompt.stop()
      await printLine(context, '')
    }
  })
