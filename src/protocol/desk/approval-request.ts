import { type JsonField, either, flag, listUpTo, matching, oneOf, orNull, record, textUpTo, wholeUpTo } from '../json-table.ts'
import { MAX_QUESTION_TEXT, MAX_SHOWN_QUESTION, MAX_SHOWN_STDIN } from '../limits/approvals.ts'
import { LOCAL_INTERFACES, type LocalInterface } from '../reasons.ts'

/** Where a command runs: in a sandbox of this host, on this host, or on an agent of the mesh. */
export const HOSTS = ['sandbox', 'gateway', 'node'] as const
export type Host = (typeof HOSTS)[number]

/** How far it may go, strictest first: nothing, what a list has, all that the ceiling allows. */
export const SECURITIES = ['deny', 'allowlist', 'full'] as const
export type Security = (typeof SECURITIES)[number]

/** Whom to ask, strictest first. */
export const ASKS = ['always', 'on-miss', 'off'] as const
export type Ask = (typeof ASKS)[number]

/** What decides where somebody must be asked and nobody answers, strictest first. */
export const ASK_FALLBACKS = ['deny', 'allowlist', 'full'] as const
export type AskFallback = (typeof ASK_FALLBACKS)[number]

export const DECISIONS = ['allow_once', 'allow_always', 'deny'] as const
export type Decision = (typeof DECISIONS)[number]

/** What a desk answers an engine. */
export const APPROVAL_ANSWERS = ['allow', 'deny', 'timeout', 'no_ui', 'mismatch'] as const
export type ApprovalAnswer = (typeof APPROVAL_ANSWERS)[number]

/** Who asks. The label of a local caller is what it calls itself, and no identity. */
export type Requester =
  | { readonly kind: 'mesh'; readonly agent_id: string; readonly machine_id: string; readonly name: string | null }
  | { readonly kind: 'local'; readonly label: string }

/** Stdin that comes with it. `text`: as an approver is shown it; null: it cannot be shown. `open`: more may follow, which nobody has seen. */
export type RequestedStdin = { readonly bytes: number; readonly sha256: string | null; readonly text: string | null } | 'open'

export interface HashedFile {
  readonly path: string
  /** Hex. */
  readonly sha256: string
}

/** Whole facts of a run that somebody must allow: what a human is shown. The digests bind them. */
export interface ApprovalRequest {
  /** Of the permit that it would be, hex. */
  readonly permit_sha256: string
  /** What "always" would bind, hex; null: this may be allowed once only. */
  readonly grant_sha256: string | null
  readonly door: 'mesh' | LocalInterface
  readonly session_id: string | null
  readonly asker: Requester
  readonly target: { readonly host: Host; readonly agent_id: string | null }
  readonly argv: readonly string[]
  /** Resolved: absolute, without a link. Of a target of the mesh, argv[0]. */
  readonly executable: string
  /** The files that patterns are held against, resolved: the executable and the scripts that interpreters would run. None: no pattern counts. */
  readonly programs: readonly string[]
  /** Why the command may run what its words do not say; null: they say all. */
  readonly opaque: string | null
  readonly cwd: string
  /** Of all its variables, whose values the digests bind. */
  readonly env_names: readonly string[]
  /** Variables that the requester sets and that may decide what runs. Null: the value is too long to be shown. */
  readonly variables: readonly { readonly name: string; readonly value: string | null }[]
  readonly stdin: RequestedStdin | null
  /** The file that an interpreter would run. */
  readonly script: HashedFile | null
  /** Files of the command that the requester can write: a private copy of these bytes runs. */
  readonly writable: readonly HashedFile[]
  /** Why no private copy can run in place of one of them, so that nobody can allow it; null: there is no such file. */
  readonly unheld: string | null
  readonly timeout_ms: number
  readonly max_output_bytes: number
  /** It goes on when its requester has gone. */
  readonly outlives: boolean
  readonly security: Security
  readonly ask: Ask
  readonly ask_fallback: AskFallback
  /** Why the list that always asks has it, or may have it; with a digest for grants, a grant may allow it. */
  readonly always_ask: string | null
  /** Which rule missed. */
  readonly why: string
  /** Agents whose signed word is needed too. */
  readonly approvers: { readonly agent_ids: readonly string[]; readonly needed: number } | null
}

/** What an approver is told of a file of `writable`, in every client. */
export const REQUESTER_CAN_WRITE = 'the requester can write this file, so a private copy of these bytes runs'
/** What an approver is told where `outlives` is true. */
export const OUTLIVES_REQUESTER = 'the run goes on when its requester has gone'

/** Answer of a desk, with an HMAC by the key that it shares with engines. */
export interface SealedAnswer {
  readonly question_id: string
  readonly permit_sha256: string
  readonly decision: ApprovalAnswer
  /** `human:NAME`, `grant:ID`, `allowlist:PATTERN`, `mode:full`, `fallback:full`, `agents:ID,ID`, several joined with `+`. */
  readonly by: string
  readonly reason: string
  readonly expires_at_ms: number
  readonly nonce: string
  /** HMAC-SHA256, hex. */
  readonly mac: string
}

/** Of the mesh, whoever is proven to have asked; null: nobody is. Where another host asks for an approval, that is it, and the asker is its word alone. */
export const provenAgent = ({ asker, target }: Pick<ApprovalRequest, 'asker' | 'target'>): string | null => {
  if (asker.kind !== 'mesh') return null
  return target.host === 'node' ? (target.agent_id ?? asker.agent_id) : asker.agent_id
}

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
const anyText: JsonField<string> = textUpTo(Number.MAX_SAFE_INTEGER)
export const securityText = oneOf(SECURITIES)
export const askText = oneOf(ASKS)
export const fallbackText = oneOf(ASK_FALLBACKS)
export const hostText = oneOf(HOSTS)

const hashedFile = record({ path: textUpTo(MAX_QUESTION_TEXT, 1), sha256: sha256Text })

/** What a question looks like on the socket, field for field as policy makes it. */
export const QUESTION_FIELDS = {
  permit_sha256: sha256Text,
  grant_sha256: orNull(sha256Text),
  door: oneOf(['mesh', ...LOCAL_INTERFACES]),
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
const asWritten = (checks: typeof QUESTION_FIELDS): JsonField<ApprovalRequest> => record(checks)
export const questionCheck = asWritten(QUESTION_FIELDS)

/** What an engine comes back with to policy. */
export const ANSWER_FIELDS = {
  question_id: matching(/^q_[A-Za-z0-9_-]{22}$/, 'the id of a question'),
  permit_sha256: sha256Text,
  decision: oneOf(APPROVAL_ANSWERS),
  by: shortText,
  reason: shortText,
  expires_at_ms: wholeUpTo(Number.MAX_SAFE_INTEGER),
  nonce: matching(/^[A-Za-z0-9_-]{22}$/, '16 bytes in base64url'),
  mac: sha256Text,
}

const answerAsWritten = (checks: typeof ANSWER_FIELDS): JsonField<SealedAnswer> => record(checks)
export const answerCheck = answerAsWritten(ANSWER_FIELDS)
