import { type Fields, isText } from '../../protocol/json-table.ts'
import { bytesText, durationText, endText, resultText } from '../format.ts'

/** A part of a sentence: words of the page, a foreign text, or a command. */
export type Part = string | { readonly foreign: string } | { readonly argv: readonly string[]; readonly isCut: boolean }

export interface Sentence {
  readonly parts: readonly Part[]
  /** Colour and sign of the entry. */
  readonly tone: 'good' | 'bad' | 'open' | 'plain'
}

/** The name of an agent by its ID. */
export type NameOf = (id: string) => string

const textOf = (value: unknown): string => (isText(value) ? value : '')
const numberOf = (value: unknown): number | null => (typeof value === 'number' ? value : null)
const foreign = (value: unknown): Part => ({ foreign: isText(value) ? value : String(value) })

const commandIn = (line: Fields): Part => {
  const words = Array.isArray(line['argv']) ? line['argv'].filter(isText) : []
  return { argv: words, isCut: line['argv_cut'] !== undefined }
}

/** Requester of a line: a contact, the beginning of an ID, or the label of a local program. */
const whoOf = (line: Fields, nameOf: NameOf): Part => {
  if (isText(line['agent_id'])) return foreign(nameOf(line['agent_id']))
  return foreign(line['client_name'] ?? 'a program')
}

const whereOf = (line: Fields, nameOf: NameOf): readonly Part[] =>
  isText(line['target']) ? [' on ', foreign(nameOf(line['target']))] : [' on this machine']

const find = (lines: readonly Fields[], event: string): Fields | undefined => lines.find((line) => line['event'] === event)

/** `alice ran df -h on this machine: exit 0 in 12 ms` */
const runSentence = (lines: readonly Fields[], request: Fields, nameOf: NameOf): Sentence => {
  const start: readonly Part[] = [whoOf(request, nameOf)]
  const what: readonly Part[] = [commandIn(request), ...whereOf(request, nameOf)]
  const [exit, denial] = [find(lines, 'exit'), find(lines, 'denial') ?? find(lines, 'refused')]
  if (denial !== undefined)
    return { parts: [...start, ' could not run ', ...what, ': ', foreign(denial['reason'] ?? denial['code'])], tone: 'bad' }
  if (exit !== undefined) {
    const [code, signal, ms] = ['code', 'signal', 'duration_ms'].map((name) => numberOf(exit[name]))
    const end = endText(code ?? null, signal ?? null) ?? 'the end is not known'
    const took = ms === null || ms === undefined ? '' : ` in ${durationText(ms)}`
    const cut = exit['truncated'] === true ? ', output cut at a limit' : ''
    return { parts: [...start, ' ran ', ...what, `: ${end}${took}${cut}`], tone: code === 0 ? 'good' : 'bad' }
  }
  if (find(lines, 'lost') !== undefined) return { parts: [...start, ' ran ', ...what, ': lost, because the daemon died'], tone: 'bad' }
  return { parts: [...start, find(lines, 'started') === undefined ? ' may run ' : ' runs ', ...what], tone: 'open' }
}

const APPROVED: Readonly<Record<string, string>> = {
  allowed: 'allowed by ',
  denied: 'denied by ',
  timed_out: 'no approver answered in time; ended by ',
  no_ui: 'no approver was connected; ended by ',
  withdrawn: 'withdrawn; ended by ',
  too_many: 'denied, because there were too many, to ',
  not_shown: 'denied, because it could not be shown completely, by ',
  desk_gone: 'denied, because the approval service ended; by ',
}

const approvalSentence = (approval: Fields | undefined): readonly Part[] =>
  approval === undefined
    ? ['no decision yet']
    : [APPROVED[textOf(approval['outcome'])] ?? `${textOf(approval['outcome'])} by `, foreign(approval['by'])]

const questionSentence = (lines: readonly Fields[], question: Fields, nameOf: NameOf): Sentence => {
  const approval = find(lines, 'approval')
  const asked: readonly Part[] = [foreign(nameOf(textOf(question['asker']))), ' asked to run ', commandIn(question)]
  const tone = approval === undefined ? 'open' : approval['outcome'] === 'allowed' ? 'good' : 'bad'
  return { parts: [...asked, ...whereOf(question, nameOf), ': ', ...approvalSentence(approval)], tone }
}

const OPERATIONS: Readonly<Record<string, string>> = {
  card_import: 'imported the card of ',
  contact_meet: 'paired with ',
  contact_trust: 'changed the trust of ',
  contact_pin: 'pinned ',
  contact_unpin: 'removed a pin of ',
  contact_label: 'changed the labels of ',
  contact_remove: 'removed the contact ',
  enrol: 'enrolled ',
  exec_incoming_cancel: 'ended a run of ',
}

/** Operations that concern no other agent, or any number of them. */
const OWN_OPERATIONS: Readonly<Record<string, string>> = {
  enrol_create: 'created an enrolment key',
  enrol_revoke: 'revoked an enrolment key',
  exec_cancel: 'ended a run that this agent requested',
  identity_revoke: 'revoked this agent, or its presence on a machine',
  token_rotate: 'renewed a secret',
}

const authoritySentence = (line: Fields, nameOf: NameOf): Sentence => {
  const [operation, agent] = [textOf(line['operation']), line['agent']]
  if (isText(line['code']))
    return { parts: ['A client tried ', foreign(operation), ' without a valid proof: ', foreign(line['code'])], tone: 'bad' }
  const what = OPERATIONS[operation]
  const to: readonly Part[] = operation === 'contact_trust' && isText(line['level']) ? [' to ', foreign(line['level'])] : []
  const machine: readonly Part[] = isText(line['machine']) ? [' on machine ', foreign(line['machine'].slice(0, 12))] : []
  // The name of the contact is part of the sentence already.
  const about = operation === 'contact_label' ? textOf(line['detail']).replace(/^[^:]*: /, '') : line['detail']
  const detail: readonly Part[] = isText(about) ? [': ', foreign(about)] : []
  const head: readonly Part[] =
    what !== undefined && isText(agent)
      ? [`The operator ${what}`, foreign(nameOf(agent))]
      : OWN_OPERATIONS[operation] === undefined
        ? ['The operator did ', foreign(operation)]
        : [`The operator ${OWN_OPERATIONS[operation]}`]
  return { parts: [...head, ...machine, ...to, ...detail], tone: 'plain' }
}

const askedSentence = (line: Fields, nameOf: NameOf): Sentence => {
  const more = `${line['detach'] === undefined ? '' : ', detached'}${line['fanout_id'] === undefined ? '' : ', in a fan-out'}`
  return { parts: ['This agent asked ', foreign(nameOf(textOf(line['agent_id']))), ' to run ', commandIn(line), more], tone: 'plain' }
}

type Say = (line: Fields, nameOf: NameOf) => readonly Part[]

/** Entries of one line. */
const LINES: Readonly<Record<string, Say>> = {
  detached_asked: (line, nameOf) => [
    'This agent asked ',
    foreign(nameOf(textOf(line['agent_id']))),
    ' about a detached run: ',
    foreign(line['ask']),
  ],
  rules_asked: (line, nameOf) => ['This agent asked ', foreign(nameOf(textOf(line['agent_id']))), ' which commands it may run'],
  rules: (line, nameOf) => [whoOf(line, nameOf), ' asked which commands it may run: ', String(numberOf(line['listed']) ?? 0), ' listed'],
  attach: (line, nameOf) => [whoOf(line, nameOf), ' read the output of a detached run'],
  forget: (line, nameOf) => ['The output of a detached run of ', whoOf(line, nameOf), ' was removed by ', foreign(line['by'])],
  started: (line, nameOf) => ['A run of ', whoOf(line, nameOf), ' started'],
  warning: (line, nameOf) => ['Warning about a run of ', whoOf(line, nameOf), ': ', foreign(textOf(line['kind']).replaceAll('_', ' '))],
  lost: (line, nameOf) => ['A run of ', whoOf(line, nameOf), ' was lost, because the daemon died'],
  session: (line, nameOf) => [whoOf(line, nameOf), ' ', foreign(line['state']), ' a session through ', foreign(line['door'])],
  file_read: (line, nameOf) => [whoOf(line, nameOf), ' read ', foreign(line['path'])],
  file_write: (line, nameOf) => [
    whoOf(line, nameOf),
    ' changed ',
    foreign(line['path']),
    numberOf(line['bytes']) === null ? '' : `, ${bytesText(numberOf(line['bytes'])!)}`,
  ],
  approval: (line) => [`${String(numberOf(line['count']) ?? 1)} approval requests: `, ...approvalSentence(line)],
  store_changed: (line) => [
    foreign(line['by']),
    ' changed the approval store (',
    foreign(textOf(line['change']).replaceAll('_', ' ')),
    '): ',
    foreign(line['detail']),
  ],
  began: (line) => ['The program started, version ', foreign(line['version'])],
  stopped: () => ['The program stopped normally'],
  head: () => ['All lines so far were signed'],
  reload: (line) => ['The ACL was reloaded: ', foreign(line['outcome']), isText(line['detail']) ? ', ' : '', foreign(line['detail'] ?? '')],
}

/** Entries of one line about a refusal. */
const REFUSALS: Readonly<Record<string, Say>> = {
  refused: (line, nameOf) => [whoOf(line, nameOf), ' was refused ', foreign(line['method']), ': ', foreign(line['detail'])],
  http_refused: (line) => [
    'An HTTP request was refused (',
    foreign(line['code']),
    '): ',
    foreign(`${textOf(line['method'])} ${textOf(line['path'])}`),
    isText(line['remote']) ? ' from ' : '',
    foreign(line['remote'] ?? ''),
  ],
  desk_refused: (line) => ['The approval service refused ', foreign(line['name'] ?? 'a client'), ': ', foreign(line['detail'])],
  refusals_suppressed: (line) => [`${String(numberOf(line['count']) ?? 0)} refusals were counted without a line`],
}

/** The entry in a sentence. `lines` are of one run or approval request, oldest first, or one other line. */
export const sentenceOf = (lines: readonly Fields[], nameOf: NameOf): Sentence => {
  const request =
    find(lines, 'request') ?? lines.find((line) => line['event'] === 'denial' || (line['event'] === 'refused' && line['argv'] !== null))
  if (request !== undefined) return runSentence(lines, request, nameOf)
  const question = find(lines, 'question')
  if (question !== undefined) return questionSentence(lines, question, nameOf)
  const asked = find(lines, 'asked')
  if (asked !== undefined) return askedSentence(asked, nameOf)
  const last = lines.at(-1) ?? {}
  const event = textOf(last['event'])
  if (event === 'authority') return authoritySentence(last, nameOf)
  if (event === 'exit') {
    const [code, signal] = [numberOf(last['code']), numberOf(last['signal'])]
    const result = resultText({ result: code === 0 ? 'ok' : 'failed', code, signal, reason: null })
    return { parts: ['A run of ', whoOf(last, nameOf), ` ended: ${result}`], tone: code === 0 ? 'good' : 'bad' }
  }
  if (Object.hasOwn(REFUSALS, event)) return { parts: REFUSALS[event]!(last, nameOf), tone: 'bad' }
  if (Object.hasOwn(LINES, event)) return { parts: LINES[event]!(last, nameOf), tone: 'plain' }
  return { parts: [foreign(event === '' ? 'a line without an event' : event)], tone: 'plain' }
}
