import { shownToken } from '../../base/visible-text.ts'
import { MAX_SHOWN_QUESTION, MAX_SHOWN_STDIN, MAX_SHOWN_STDIN_JSON } from '../limits/approvals.ts'
import type { ApprovalRequest } from './approval-request.ts'

/** All texts of a request that others chose, except stdin. */
const textsOf = (request: ApprovalRequest): string[] => [
  ...request.argv,
  request.executable,
  ...request.programs,
  request.cwd,
  ...request.env_names,
  ...request.variables.flatMap(({ name, value }) => [name, value ?? '']),
  ...(request.script === null ? [] : [request.script.path]),
  ...request.writable.map(({ path }) => path),
  ...(request.file === undefined ? [] : [request.file.path, request.file.leads_to ?? '', ...request.file.creates]),
  request.session_id ?? '',
  request.asker.kind === 'local' ? request.asker.label : (request.asker.name ?? ''),
]

const isShort = (request: ApprovalRequest): boolean => {
  let left = MAX_SHOWN_QUESTION
  for (const text of textsOf(request)) {
    // A character takes at least one byte, so a text that is far too long is not escaped first.
    if (text.length > left) return false
    left -= shownToken(text).length + 1
  }
  return left >= 0
}

/** Stdin as the approver sees it, or null if it is too long or not text. */
export const shownStdin = (bytes: Uint8Array): string | null => {
  if (bytes.length > MAX_SHOWN_STDIN || bytes.includes(0)) return null
  try {
    const text = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes)
    return JSON.stringify(text).length <= MAX_SHOWN_STDIN_JSON ? text : null
  } catch {
    return null
  }
}

/** Adds the text of stdin to a request. The digests cover it by its hash. */
export const withStdin = (request: ApprovalRequest, bytes: Uint8Array): ApprovalRequest => {
  const { stdin } = request
  return stdin === null || stdin === 'open' ? request : { ...request, stdin: { ...stdin, text: shownStdin(bytes) } }
}

/** Values of variables, as many as fit a request, or null for one that does not fit. */
export const shownVariables = (variables: readonly { readonly name: string; readonly value: string }[]): ApprovalRequest['variables'] => {
  let left = MAX_SHOWN_QUESTION
  return variables.map(({ name, value }) => {
    left -= name.length + value.length
    return { name, value: left < 0 ? null : value }
  })
}

const stdinProblem = ({ stdin }: ApprovalRequest): string | null => {
  if (stdin === null) return null
  const kib = MAX_SHOWN_STDIN / 1024
  if (stdin === 'open') return 'its stdin stays open, so an approver cannot see all of it: send all stdin with the call and close it'
  if (stdin.text !== null) return null
  return stdin.bytes > MAX_SHOWN_STDIN
    ? `its stdin has ${stdin.bytes} bytes, but an approver sees at most ${kib} KiB: put it into a file that the requester cannot write`
    : 'its stdin is not readable text (UTF-8 without NUL and with few control characters): put it into a file that the requester cannot write'
}

/** Text about a file that a private copy cannot replace. */
export const unheldText = (why: string): string =>
  `${why}, so it could be changed after the approval: run a file that the requester cannot write`

/** Why no approver can allow a request, or null if one can. Either it cannot be displayed completely, or its files cannot be pinned. */
export const unallowable = (request: ApprovalRequest): string | null => {
  if (request.unheld !== null) return unheldText(request.unheld)
  const stdin = stdinProblem(request)
  if (stdin !== null) return stdin
  const variable = request.variables.find(({ value }) => value === null)
  if (variable !== undefined)
    return `the values of its variables are too long to show (${shownToken(variable.name)}): put them into a file that the requester cannot write`
  return isShort(request) ? null : `it is too long to show (${MAX_SHOWN_QUESTION / 1024} KiB): put it into a script, and run the script`
}
