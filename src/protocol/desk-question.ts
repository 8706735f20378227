import { MAX_QUESTION_TEXT, MAX_SHOWN_QUESTION, MAX_SHOWN_STDIN } from './desk-limits.ts'
import { type Field, either, flag, listUpTo, matching, oneOf, orNull, record, textUpTo, wholeUpTo } from './json-table.ts'
import { ANSWERS, ASKS, ASK_FALLBACKS, HOSTS, type Question, SECURITIES, type SealedAnswer } from './question.ts'
import { LOCAL_DOORS } from './reasons.ts'

/** Words of a command, and names of variables: what Linux takes is less than the bytes of a question allow. */
const MAX_WORDS = 32_768
const MAX_NAMES = 1_024
/** A console sets no time. */
const MAX_TIMEOUT = Number.MAX_SAFE_INTEGER
const MAX_APPROVERS = 64
/** Programs that one command names: the executable and its scripts. */
const MAX_PROGRAMS = 256

export const sha256Text = matching(/^[0-9a-f]{64}$/, '64 lower-case hex digits')
const shortText = textUpTo(MAX_QUESTION_TEXT)
const anyText: Field<string> = textUpTo(Number.MAX_SAFE_INTEGER)
export const securityText = oneOf(SECURITIES)
export const askText = oneOf(ASKS)
export const fallbackText = oneOf(ASK_FALLBACKS)
export const hostText = oneOf(HOSTS)

const hashedFile = record({ path: textUpTo(MAX_QUESTION_TEXT, 1), sha256: sha256Text })

/** What a question looks like on the socket, field for field as policy makes it. */
export const QUESTION_FIELDS = {
  permit_sha256: sha256Text,
  grant_sha256: orNull(sha256Text),
  door: oneOf(['mesh', ...LOCAL_DOORS]),
  session_id: orNull(textUpTo(MAX_QUESTION_TEXT, 1)),
  asker: either(
    record({ kind: oneOf(['mesh']), agent_id: sha256Text, machine_id: sha256Text, name: orNull(shortText) }),
    record({ kind: oneOf(['local']), label: shortText }),
  ),
  target: record({ host: hostText, agent_id: orNull(sha256Text) }),
  argv: listUpTo(anyText, MAX_WORDS, 1),
  executable: textUpTo(MAX_QUESTION_TEXT, 1),
  programs: listUpTo(shortText, MAX_PROGRAMS),
  opaque: orNull(shortText),
  cwd: textUpTo(MAX_QUESTION_TEXT, 1),
  env_names: listUpTo(shortText, MAX_NAMES),
  variables: listUpTo(record({ name: shortText, value: orNull(textUpTo(MAX_SHOWN_QUESTION)) }), MAX_NAMES),
  stdin: either(
    orNull(record({ bytes: wholeUpTo(Number.MAX_SAFE_INTEGER), sha256: orNull(sha256Text), text: orNull(textUpTo(MAX_SHOWN_STDIN)) })),
    oneOf(['open']),
  ),
  script: orNull(hashedFile),
  writable: listUpTo(hashedFile, MAX_PROGRAMS),
  unheld: orNull(shortText),
  timeout_ms: wholeUpTo(MAX_TIMEOUT),
  max_output_bytes: wholeUpTo(Number.MAX_SAFE_INTEGER),
  outlives: flag,
  security: securityText,
  ask: askText,
  ask_fallback: fallbackText,
  always_ask: orNull(shortText),
  why: shortText,
  approvers: orNull(record({ agent_ids: listUpTo(sha256Text, MAX_APPROVERS, 1), needed: wholeUpTo(MAX_APPROVERS, 1) })),
}

/** A type error here says that policy's question and this list differ. */
const asWritten = (checks: typeof QUESTION_FIELDS): Field<Question> => record(checks)
export const questionCheck = asWritten(QUESTION_FIELDS)

/** What an engine comes back with to policy. */
export const ANSWER_FIELDS = {
  question_id: matching(/^q_[A-Za-z0-9_-]{22}$/, 'the id of a question'),
  permit_sha256: sha256Text,
  decision: oneOf(ANSWERS),
  by: shortText,
  reason: shortText,
  expires_at_ms: wholeUpTo(Number.MAX_SAFE_INTEGER),
  nonce: matching(/^[A-Za-z0-9_-]{22}$/, '16 bytes in base64url'),
  mac: sha256Text,
}

const answerAsWritten = (checks: typeof ANSWER_FIELDS): Field<SealedAnswer> => record(checks)
export const answerCheck = answerAsWritten(ANSWER_FIELDS)
