import { birthOf } from '../base/proc-stat.ts'
import type { TimeShare } from '../base/time-sharing.ts'
import { send, type Member } from './signals.ts'

/** The same, and the event loop goes round in between. */
export async function* inTurns<T>(all: Iterable<T>, share: TimeShare): AsyncGenerator<T> {
  for (const one of all) {
    if (share.due) await share.turn()
    yield one
  }
}

/** Signals all, who are looked for first: who is told may end, and those below him are not found any more. */
export const signalAll = async (all: Iterable<Member | null>, signals: readonly NodeJS.Signals[], share: TimeShare): Promise<void> => {
  const members: Member[] = []
  for await (const member of inTurns(all, share)) if (member !== null) members.push(member)
  for await (const { pid, born } of inTurns(members, share)) if (birthOf(pid) === born) for (const signal of signals) send(pid, signal)
}
