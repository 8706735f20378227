import { AppError, isAppError } from '../base/errors.ts'
import { dialOwn } from '../base/unix-sockets.ts'
import { DeskChannel } from '../desk/desk-channel.ts'
import { approverKeyOf } from '../desk/seal.ts'
import {
  type AllModes,
  type ApprovalClientBody,
  type Flood,
  type Grant,
  type HumanDecision,
  type ModeOverride,
  type PendingApprovalRequest,
  type RowSettings,
  type ToApprovalClientBody,
  readToApprovalClientBody,
} from '../protocol/desk/messages.ts'
import { changedOverride, overrideIn, overrideText, readModeCommand } from '../protocol/desk/mode-command.ts'
import type { LifecycleEvent } from '../protocol/events/lifecycle.ts'
import type { Fields } from '../protocol/json-table.ts'
import { DESK_ANSWER_MS, MAX_DESK_REPLY } from '../protocol/limits/approvals.ts'
import { operatorKey } from './operator.ts'
import type { DataPaths } from './paths.ts'

/** Messages that follow `subscribe`. */
export type ApprovalServiceEvent = Extract<ToApprovalClientBody, { type: 'question' | 'settled' | 'flood' | 'event' }>

/** Pending approval requests, oldest first, and those denied because a client made too many. */
export interface PendingApprovals {
  readonly questions: readonly PendingApprovalRequest[]
  readonly floods: readonly Flood[]
  /** Number of approval clients. Each is shown every request. */
  readonly windows: number
}

type WithoutId<B> = B extends { readonly id: number } ? Omit<B, 'id'> : never
type Request = WithoutId<ApprovalClientBody>

const lost = (): AppError =>
  new AppError('daemon_unreachable', 'the approval service closed the connection. To see its decisions: x0x approvals history', {
    data: { next: '' },
  })
const silent = (): AppError =>
  new AppError(
    'daemon_unreachable',
    'the approval service does not answer: x0xd or x0x desk may be suspended (continue it with fg), or start it again',
    {
      data: { next: '' },
    },
  )

export const noDesk = ({ dir }: Pick<DataPaths, 'dir'>): AppError =>
  new AppError(
    'daemon_unreachable',
    `no approval service runs in ${dir}, so requests that need approval are denied: start x0xd --init, or x0x desk without a daemon`,
    { data: { next: '' } },
  )

/** A connection to the approval service, for pending requests, decisions, and grants. `openDesk` makes it. */
export class ApprovalClient {
  readonly #channel: DeskChannel<ToApprovalClientBody>
  /** Resolves with the reason when the connection is closed. */
  readonly closed: Promise<AppError>
  #listener: ((news: ApprovalServiceEvent) => void) | null = null

  constructor(channel: DeskChannel<ToApprovalClientBody>) {
    this.#channel = channel
    this.closed = channel.read((body) => this.#take(body))
  }

  /** Registers as a client that an approver sees. Requests wait for it, and `listener` receives each of them and its end. */
  async subscribe(listener: (news: ApprovalServiceEvent) => void): Promise<PendingApprovals> {
    this.#listener = listener
    return this.#ask<PendingApprovals>({ type: 'subscribe' })
  }

  /** Subscribes `listener` to the output of these runs (`runOf`) only, and returns those that are live. */
  async follow(runs: readonly string[]): Promise<readonly LifecycleEvent[]> {
    return (await this.#ask<{ readonly running: readonly LifecycleEvent[] }>({ type: 'follow', runs })).running
  }

  /** Receives events of local runs without registering as an approver. */
  async listen(listener: (news: ApprovalServiceEvent) => void): Promise<void> {
    this.#listener = listener
    await this.#ask({ type: 'listen' })
  }

  async pending(): Promise<PendingApprovals> {
    return this.#ask<PendingApprovals>({ type: 'pending' })
  }

  /** Throws `conflict`, with `won_by` and `decision` in its data, if another approver was faster. */
  async decide(
    decision: HumanDecision,
  ): Promise<{ readonly question_id: string; readonly decision: string; readonly grant_id: string | null }> {
    return this.#ask({ type: 'decide', ...decision })
  }

  async grants(): Promise<readonly Grant[]> {
    return (await this.#ask<{ readonly grants: readonly Grant[] }>({ type: 'grants' })).grants
  }

  async revoke(grantId: string): Promise<{ readonly revoked: boolean }> {
    return this.#ask({ type: 'revoke', grant_id: grantId })
  }

  /** The approvals store, without the secret for engines. */
  async store(): Promise<Fields> {
    return this.#ask({ type: 'store' })
  }

  /** With `opaque`, the operator accepts that programs of the pattern may run others. */
  async allowlist(change: 'allowlist_add' | 'allowlist_remove', agent: string, pattern: string, opaque = false): Promise<Fields> {
    if (change === 'allowlist_remove') return this.#ask({ type: change, agent, pattern })
    return this.#ask({ type: change, agent, pattern, opaque })
  }

  /** Lines of the approval log, newest last. */
  async history(limit: number): Promise<Fields> {
    return this.#ask({ type: 'history', limit })
  }

  async modes(of: { readonly session: string | null; readonly agent: string | null }): Promise<Fields> {
    return this.#ask({ type: 'modes_get', ...of })
  }

  async allModes(): Promise<AllModes> {
    return this.#ask({ type: 'modes_list' })
  }

  /** Null resets to the configured modes. */
  async setModes(session: string, override: ModeOverride | null): Promise<Fields> {
    return this.#ask({ type: 'modes_set', session, override })
  }

  /** Writes the row of an agent. Null removes it. */
  async saveModes(agent: string, row: RowSettings | null): Promise<Fields> {
    return this.#ask({ type: 'modes_save', agent, row })
  }

  close(): void {
    this.#channel.close(new AppError('shutting_down', 'the connection to the approval service was closed'))
  }

  async #ask<T = Fields>(request: Request): Promise<T> {
    const { id, reply } = this.#channel.replies.start(null)
    this.#channel.send({ ...request, id })
    const late = setTimeout(() => this.#channel.close(silent()), DESK_ANSWER_MS)
    return (await reply.finally(() => clearTimeout(late))) as T
  }

  #take(body: Exclude<ToApprovalClientBody, { type: 'error' }>): void {
    if (body.type === 'result') this.#channel.replies.resolve(body.id, body.result)
    else if (body.type !== 'opened') this.#listener?.(body)
  }
}

const foreign = (problem: string): AppError =>
  new AppError('loose_permissions', `${problem}: it is not used. Remove it, and start x0xd --init or x0x desk again`)

/** Connects to an approval service. Both sides prove that they have the operator's key. Throws `daemon_unreachable` without a service. */
export const openDesk = async (paths: DataPaths, name: string): Promise<ApprovalClient> => {
  const socket = await dialOwn(paths.approvalsSocket, foreign)
  if (socket === null) throw noDesk(paths)
  try {
    const channel = await DeskChannel.open({
      socket,
      role: 'human',
      name,
      // Read after the connection is made. A user without a running service has no key either, and needs the message about the service.
      key: () => approverKeyOf(operatorKey(paths.operatorKey)),
      maxLine: MAX_DESK_REPLY,
      read: readToApprovalClientBody,
      refused:
        'the approval service refused this client: operator.key is not that of its data directory, or too many clients are connected',
      lost,
    })
    return new ApprovalClient(channel)
  } catch (error) {
    throw isAppError(error, 'daemon_unreachable') ? noDesk(paths) : error
  }
}

/** Applies a line of the approver, `/exec …` or `/elevated …`, to a session. Returns the modes that are then set. */
export const setModes = async (paths: DataPaths, session: string, line: string): Promise<string> => {
  const command = readModeCommand(line.split(' ').filter((word) => word !== ''))
  if (command.kind === 'problem') throw new AppError('bad_request', command.problem)
  const desk = await openDesk(paths, 'x0x console')
  try {
    const of = { session, agent: session }
    const before = overrideIn((await desk.modes(of))['session'])
    if (command.kind === 'change') await desk.setModes(session, changedOverride(before, command.change))
    return overrideText(overrideIn((await desk.modes(of))['session']))
  } finally {
    desk.close()
  }
}
