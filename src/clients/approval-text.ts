import { shownSentence, shownToken, strangeLetters } from '../base/visible-text.ts'
import { unallowable } from '../protocol/desk/approval-request-size.ts'
import {
  type ApprovalRequest,
  type HashedFile,
  OUTLIVES_REQUESTER,
  REQUESTER_CAN_WRITE,
  type RequestedFile,
} from '../protocol/desk/approval-request.ts'
import { fileNames, fileText } from '../protocol/desk/file-text.ts'

/** Columns of the label before a fact. */
const LABEL_WIDTH = 12
/** Width of a line if the terminal's is unknown, and the least width for a fact. */
const USUAL_COLUMNS = 80
const LEAST_COLUMNS = 20
/** Marks a continued line. No token of x0x begins with it. */
const GOES_ON = '| '

const cellsOf = (character: string): number => ((character.codePointAt(0) ?? 0) > 0x7e ? 2 : 1)

/**
 * Wraps where the terminal would, so that no part of a token stands where a line of x0x begins. Wide characters count double, and so may
 * some that are not wide.
 */
const wrapped = (text: string, cells: number): string[] => {
  const lines: string[] = []
  let [line, used] = ['', 0]
  for (const character of text) {
    if (used + cellsOf(character) > cells) {
      lines.push(line)
      ;[line, used] = ['', 0]
    }
    line += character
    used += cellsOf(character)
  }
  return [...lines, line]
}

const block = (label: string, text: string, columns: number): string[] => {
  const cells = Math.max(LEAST_COLUMNS, columns - LABEL_WIDTH - GOES_ON.length - 1)
  return wrapped(text, cells).map((part, at) =>
    at === 0 ? `${label.padEnd(LABEL_WIDTH)}${part}` : `${' '.repeat(LABEL_WIDTH)}${GOES_ON}${part}`,
  )
}

/** The requester and how it is authenticated. */
export const askerText = ({ asker, door, session_id: session, target }: ApprovalRequest): string => {
  const within = session === null ? '' : `, session ${shownToken(session)}`
  if (asker.kind === 'local') return `${shownToken(asker.label)} through ${door}${within} (an unverified label)`
  const name = asker.name === null ? '' : `${shownToken(asker.name)}, `
  return `${name}agent ${asker.agent_id} on machine ${asker.machine_id}${within}: ${target.host === 'node' ? `so says the host that asks, ${target.agent_id ?? ''}; that one is proven by its signature and its connection` : 'proven by its signature and its connection'}`
}

const HOSTS: Readonly<Record<ApprovalRequest['target']['host'], string>> = {
  gateway: 'this host',
  sandbox: 'a sandbox of this machine',
  node: 'another agent',
}

export const targetText = ({ target: { host, agent_id: agent } }: ApprovalRequest): string =>
  `${HOSTS[host]} (${host})${agent === null ? '' : `, agent ${agent}`}`

export const stdinText = ({ stdin }: ApprovalRequest): string => {
  if (stdin === null) return 'none'
  if (stdin === 'open') return 'open: it can receive more, which is not shown'
  return `${stdin.bytes} bytes${stdin.sha256 === null ? '' : `, sha256 ${stdin.sha256}`}${stdin.text === null ? ', which cannot be shown' : ''}`
}

const variablesText = ({ env_names: names }: ApprovalRequest): string =>
  names.length === 0 ? 'none of its own' : names.map(shownToken).join(' ')

const valueText = ({ name, value }: ApprovalRequest['variables'][number]): string =>
  `${shownToken(name)} = ${value === null ? 'a value that is too long to be shown' : shownToken(value)}`

const hashedText = ({ path, sha256 }: HashedFile): string => `${shownToken(path)} sha256 ${sha256}`

const secondsText = (ms: number): string => (ms === Number.MAX_SAFE_INTEGER ? 'none' : `${ms / 1000} s`)

const approversText = ({ approvers }: ApprovalRequest): string =>
  approvers === null ? '' : `${approvers.needed} of ${approvers.agent_ids.join(', ')}`

/** Programs that the executable would start, and those that are unknown. */
const programsText = ({ programs, executable }: ApprovalRequest): string =>
  programs
    .filter((program) => program !== executable)
    .map(shownToken)
    .join(' ')

/** A foreign text after its label, in quotes, with the letters in it that imitate others. */
const tokenLines = (label: string, token: string, columns: number): string[] => {
  const strange = strangeLetters(token)
  return [
    ...block(label, shownToken(token), columns),
    ...(strange.length === 0 ? [] : block('', `not ASCII, and may look like others: ${strange.join(' ')}`, columns)),
  ]
}

/** Text on stdin, in lines numbered from 1. */
const stdinLines = ({ stdin }: ApprovalRequest, columns: number): string[] => {
  const text = stdin === null || stdin === 'open' ? null : stdin.text
  const lines = text?.match(/[^\n]*\n|[^\n]+$/g) ?? []
  return lines.flatMap((line, at) => tokenLines(`${`stdin ${at + 1}`.padEnd(LABEL_WIDTH - 1)} `, line, columns))
}

/** Remaining time, such as `87 s`. Never below zero. */
export const countdown = (expiresAtMs: number, nowMs: number): string => `${Math.max(0, Math.ceil((expiresAtMs - nowMs) / 1000))} s`

/** The facts of a file command. It has no program, no variables and no stdin that an approver could read. */
const fileLines = (file: RequestedFile, question: ApprovalRequest, columns: number): string[] => {
  const strange = [...new Set(fileNames(file).flatMap(strangeLetters))]
  return [
    ...block('wants to', fileText(file), columns),
    ...(strange.length === 0 ? [] : block('', `not ASCII, and may look like others: ${strange.join(' ')}`, columns)),
    ...block('below', shownToken(question.cwd), columns),
  ]
}

/** A complete approval request, with separate lines for each fact, and tokens numbered from 0. No text can control the terminal. */
export const questionLines = (question: ApprovalRequest, columns = USUAL_COLUMNS): string[] => {
  const fact = (label: string, text: string): string[] => (text === '' ? [] : block(label, text, columns))
  return [
    ...fact('asked by', askerText(question)),
    ...fact('runs on', targetText(question)),
    ...(question.file === undefined ? programLines(question, columns) : fileLines(question.file, question, columns)),
    ...fact('mode', `security ${question.security}, ask ${question.ask}, no approver connected: ${question.ask_fallback}`),
    ...fact('reason', shownSentence(question.why)),
    ...fact('always asks', question.always_ask === null ? '' : shownSentence(question.always_ask)),
    ...fact('also needs', approversText(question)),
    ...fact('not allowed', unallowable(question) ?? ''),
    ...fact('permit', `sha256 ${question.permit_sha256}`),
  ]
}

/** The facts of a run of a program. */
const programLines = (question: ApprovalRequest, columns: number): string[] => {
  const fact = (label: string, text: string): string[] => (text === '' ? [] : block(label, text, columns))
  return [
    ...fact('executable', shownToken(question.executable)),
    ...question.argv.flatMap((token, at) => tokenLines(`${String(at).padStart(LABEL_WIDTH - 2)}  `, token, columns)),
    ...fact('starts', programsText(question)),
    ...fact('beware', question.opaque === null ? '' : shownSentence(question.opaque)),
    ...fact('directory', shownToken(question.cwd)),
    ...fact('variables', variablesText(question)),
    ...question.variables.flatMap((variable) => fact('sets', valueText(variable))),
    ...fact('stdin', stdinText(question)),
    ...stdinLines(question, columns),
    ...fact('script', question.script === null ? '' : hashedText(question.script)),
    ...question.writable.flatMap((file) => fact('can change', `${hashedText(file)}: ${REQUESTER_CAN_WRITE}`)),
    ...fact('timeout', secondsText(question.timeout_ms)),
    ...fact('outlives', question.outlives ? OUTLIVES_REQUESTER : ''),
  ]
}
