import { type JsonField, either, flag, listUpTo, matching, oneOf, optional, orNull, record, textUpTo, wholeUpTo } from '../json-table.ts'
import { MAX_QUESTION_TEXT, MAX_SHOWN_QUESTION, MAX_SHOWN_STDIN } from '../limits/approvals.ts'
import { LOCAL_INTERFACES, type LocalInterface } from '../reasons.ts'

/** Execution host of a command, which is a sandbox of this host, this host itself, or a mesh agent. */
export const HOSTS = ['sandbox', 'gateway', 'node'] as const
export type Host = (typeof HOSTS)[number]

/** Commands that may run, strictest first. `full` means all that the configuration allows. */
export const SECURITIES = ['deny', 'allowlist', 'full'] as const
export type Security = (typeof SECURITIES)[number]

/** When to ask, strictest first. */
export const ASKS = ['always', 'on-miss', 'off'] as const
export type Ask = (typeof ASKS)[number]

/** The decision if an approval is needed and no approver answers, strictest first. */
export const ASK_FALLBACKS = ['deny', 'allowlist', 'full'] as const
export type AskFallback = (typeof ASK_FALLBACKS)[number]

export const DECISIONS = ['allow_once', 'allow_always', 'deny'] as const
export type Decision = (typeof DECISIONS)[number]

/** Decisions that the approval service returns. */
export const APPROVAL_ANSWERS = ['allow', 'deny', 'timeout', 'no_ui', 'mismatch'] as const
export type ApprovalAnswer = (typeof APPROVAL_ANSWERS)[number]

/** The requester. A local client chooses its label itself. */
export type Requester =
  | { readonly kind: 'mesh'; readonly agent_id: string; readonly machine_id: string; readonly name: string | null }
  | { readonly kind: 'local'; readonly label: string }

/** Stdin of the run. The approver sees `text`, which is null if not displayable. After `open`, more may follow, unseen. */
export type RequestedStdin = { readonly bytes: number; readonly sha256: string | null; readonly text: string | null } | 'open'

export interface HashedFile {
  readonly path: string
  /** Hex. */
  readonly sha256: string
}

const FILE_ACTIONS = ['read', 'write', 'append', 'mkdir'] as const

/** A file command as the target has checked it. The approval covers exactly this. */
export interface RequestedFile {
  readonly action: (typeof FILE_ACTIONS)[number]
  /** Absolute path, as the requester named it. */
  readonly path: string
  /** The path with all links followed, or null if it is the same. */
  readonly leads_to: string | null
  /** Bytes of the content that is read, written or appended, or null for a directory. */
  readonly size: number | null
  /** SHA-256 of the content as hex, or null if it is not known before. */
  readonly sha256: string | null
  /** The file that is read, replaced or extended, or null for a new one. */
  readonly present: { readonly size: number; readonly mtime: string } | null
  /** Missing directories that are created, the topmost first. */
  readonly creates: readonly string[]
  /** Permission bits of a new file or directory, in octal, or null for an existing one. */
  readonly mode: string | null
  /** User that owns a new file or directory, or null for the user of the daemon. */
  readonly owner: string | null
}

/** All facts of a run that needs an approval, as the approver sees them. The digests cover them. */
export interface ApprovalRequest {
  /** Digest of the future permit as hex. */
  readonly permit_sha256: string
  /** Digest for "always" as hex, or null if the run may be allowed only once. */
  readonly grant_sha256: string | null
  readonly door: 'mesh' | LocalInterface
  readonly session_id: string | null
  readonly asker: Requester
  readonly target: { readonly host: Host; readonly agent_id: string | null }
  readonly argv: readonly string[]
  /** Absolute path without links. For a target of the mesh, argv[0]. */
  readonly executable: string
  /** Resolved paths of the executable and the scripts of interpreters. Patterns must match them. If empty, no pattern applies. */
  readonly programs: readonly string[]
  /** Why the command may run more than its arguments show, or null if they show all. */
  readonly opaque: string | null
  readonly cwd: string
  /** Names of all variables. The digests cover their values. */
  readonly env_names: readonly string[]
  /** Variables of the requester that may decide which code runs. Null for a value that is too long to display. */
  readonly variables: readonly { readonly name: string; readonly value: string | null }[]
  readonly stdin: RequestedStdin | null
  /** The script that an interpreter would run. */
  readonly script: HashedFile | null
  /** Files of the command that the requester can write. A private copy of these bytes runs. */
  readonly writable: readonly HashedFile[]
  /** Why one of them cannot be replaced by a private copy, so that the run cannot be allowed, or null. */
  readonly unheld: string | null
  readonly timeout_ms: number
  readonly max_output_bytes: number
  /** True for a detached run, which continues without its requester. */
  readonly outlives: boolean
  readonly security: Security
  readonly ask: Ask
  readonly ask_fallback: AskFallback
  /** Reason of the always-ask rule that applies or may apply. With a digest for grants, a grant may allow the run. */
  readonly always_ask: string | null
  readonly why: string
  /** Mesh agents whose signed statement is needed too. */
  readonly approvers: { readonly agent_ids: readonly string[]; readonly needed: number } | null
  /** The file command. Absent in a request for a program. */
  readonly file?: RequestedFile | undefined
}

/** Text about a file of `writable`, in each approval client. */
export const REQUESTER_CAN_WRITE = 'the requester can write this file, so a private copy of these bytes runs'
/** Text displayed if `outlives` is true. */
export const OUTLIVES_REQUESTER = 'the run continues without its requester'

/** A reply of the approval service, with an HMAC under the key that it shares with executors. */
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

/**
 * The authenticated mesh agent that sent the request, or null for a local one. If another host asks for an approval, that host is
 * authenticated and the requester is only its claim.
 */
export const provenAgent = ({ asker, target }: Pick<ApprovalRequest, 'asker' | 'target'>): string | null => {
  if (asker.kind !== 'mesh') return null
  return target.host === 'node' ? (target.agent_id ?? asker.agent_id) : asker.agent_id
}

/** Arguments of a command, and variable names. Linux allows fewer than fit the size of a request. */
const MAX_WORDS = 32_768
const MAX_NAMES = 1_024
/** A console has no timeout. */
const MAX_TIMEOUT = Number.MAX_SAFE_INTEGER
const MAX_APPROVERS = 64
/** The executable of a command and its scripts. */
const MAX_PROGRAMS = 256
/** Directories in one path. */
const MAX_CREATED = 2_048

export const sha256Text = matching(/^[0-9a-f]{64}$/, '64 lower-case hex digits')
const shortText = textUpTo(MAX_QUESTION_TEXT)
const anyText: JsonField<string> = textUpTo(Number.MAX_SAFE_INTEGER)
export const securityText = oneOf(SECURITIES)
export const askText = oneOf(ASKS)
export const fallbackText = oneOf(ASK_FALLBACKS)
export const hostText = oneOf(HOSTS)

const hashedFile = record({ path: textUpTo(MAX_QUESTION_TEXT, 1), sha256: sha256Text })

const requestedFile = record({
  action: oneOf(FILE_ACTIONS),
  path: textUpTo(MAX_QUESTION_TEXT, 1),
  leads_to: orNull(textUpTo(MAX_QUESTION_TEXT, 1)),
  size: orNull(wholeUpTo(Number.MAX_SAFE_INTEGER)),
  sha256: orNull(sha256Text),
  present: orNull(record({ size: wholeUpTo(Number.MAX_SAFE_INTEGER), mtime: shortText })),
  creates: listUpTo(textUpTo(MAX_QUESTION_TEXT, 1), MAX_CREATED),
  mode: orNull(shortText),
  owner: orNull(shortText),
})

/** Fields of an approval request on the socket, with the names of policy. */
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
  // Absent for a program, so that a service or an approver of an older release can read requests for programs.
  file: optional(requestedFile),
}

/** A type error at this line means that the request of policy and this list differ. */
const asWritten = (checks: typeof QUESTION_FIELDS): JsonField<ApprovalRequest> => record(checks)
export const questionCheck = asWritten(QUESTION_FIELDS)

/** Fields of the reply that an executor passes to policy. */
export const ANSWER_FIELDS = {
  question_id: matching(/^q_[A-Za-z0-9_-]{22}$/, 'the ID of an approval request'),
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
