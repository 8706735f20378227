import { shownToken } from '../base/visible-text.ts'
import { MAX_SHOWN_QUESTION } from './desk-limits.ts'
import type { Question } from './question.ts'

/** Every text of a question that others chose. */
const textsOf = (question: Question): string[] => [
  ...question.argv,
  question.executable,
  ...question.programs,
  question.cwd,
  ...question.env_names,
  ...(question.script === null ? [] : [question.script.path]),
  question.session_id ?? '',
  question.asker.kind === 'local' ? question.asker.label : (question.asker.name ?? ''),
]

/** False for a question that is too long for a human to read whole: it is refused, and never shown in part. */
export const isShowable = (question: Question): boolean => {
  let left = MAX_SHOWN_QUESTION
  for (const text of textsOf(question)) {
    // A character takes one place at least: what is far too long is not escaped first.
    if (text.length > left) return false
    left -= shownToken(text).length + 1
  }
  return left >= 0
}
