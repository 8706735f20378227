import { shownToken } from '../../base/visible-text.ts'
import { fileNames } from '../../protocol/desk/file-text.ts'
import type { PendingApprovalRequest } from '../../protocol/desk/messages.ts'

export const askerText = ({ asker, door, session_id }: PendingApprovalRequest['question']): string => {
  const session = session_id === null ? '' : `, session ${shownToken(session_id)}`
  if (asker.kind === 'local') return `${shownToken(asker.label)} (a label), through ${door}${session}`
  return `agent ${asker.name === null ? '' : `${shownToken(asker.name)} `}${asker.agent_id}${session}`
}

/** How the requester is authenticated. */
export const proofText = ({ asker, target }: PendingApprovalRequest['question']): string => {
  if (asker.kind === 'mesh' && target.host === 'node')
    return `Claimed by agent ${target.agent_id ?? ''}, whose signature and connection are verified.`
  return asker.kind === 'mesh'
    ? `A request signed by this agent's key, over a link that proved machine ${asker.machine_id}.`
    : 'It runs as a user of this machine. It chose the label itself.'
}

export const targetText = ({ target }: PendingApprovalRequest['question']): string =>
  target.host === 'node'
    ? `on agent ${target.agent_id ?? '?'}`
    : target.host === 'sandbox'
      ? 'in the sandbox of this machine'
      : 'on this machine'

const seconds = (ms: number): number => Math.max(0, Math.ceil(ms / 1000))

/** `1:05` */
export const leftText = (ms: number): string => `${Math.floor(seconds(ms) / 60)}:${String(seconds(ms) % 60).padStart(2, '0')}`

export const stdinText = ({ stdin }: PendingApprovalRequest['question']): string => {
  if (stdin === null) return 'none'
  if (stdin === 'open') return 'open: the requester may write to it while it runs'
  return `${stdin.bytes} bytes${stdin.sha256 === null ? '' : `, SHA-256 ${stdin.sha256}`}${stdin.text === null ? ', which cannot be shown' : ''}`
}

export const stdinLines = ({ stdin }: PendingApprovalRequest['question']): readonly string[] =>
  stdin === null || stdin === 'open' ? [] : (stdin.text?.match(/[^\n]*\n|[^\n]+$/g) ?? [])

/** Every text with letters that imitate others. */
export const foreignTexts = ({ argv, executable, cwd, stdin, variables, file }: PendingApprovalRequest['question']): readonly string[] => [
  ...argv,
  ...(file === undefined ? [] : fileNames(file)),
  executable,
  cwd,
  ...(stdin === null || stdin === 'open' || stdin.text === null ? [] : [stdin.text]),
  ...variables.flatMap(({ name, value }) => [name, value ?? '']),
]

/** The requests of one requester. Several become one line with a count, which hides none of another requester. */
export interface RequesterGroup {
  /** Identifies the requester. */
  readonly source: string
  readonly asker: string
  readonly questions: readonly PendingApprovalRequest[]
}

/**
 * The requester as far as it is authenticated. A label could be anybody's, so the session identifies it. A statement of another host is
 * identified by that host.
 */
const sourceOf = ({ asker, door, session_id, target }: PendingApprovalRequest['question']): string =>
  JSON.stringify([asker, door, session_id, asker.kind === 'mesh' && target.host === 'node' ? target.agent_id : null])

export const groupsOf = (questions: readonly PendingApprovalRequest[]): readonly RequesterGroup[] => {
  const groups = new Map<string, PendingApprovalRequest[]>()
  for (const one of questions) {
    const key = sourceOf(one.question)
    const group = groups.get(key)
    if (group === undefined) groups.set(key, [one])
    else group.push(one)
  }
  return [...groups].map(([source, group]) => ({ source, asker: askerText(group[0]!.question), questions: group }))
}
