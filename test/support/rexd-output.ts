import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'

import { post, type Notification, type Reached, type SocketCaller } from './rexd-callers.ts'
import { pidIn, type RexdServer } from './rexd-server.ts'

/** Numbered lines show lost, repeated or reordered output. */
const LINES = 3_000_000
/** Writes the PID of the program to the file. */
export const numbers = (file = 'pid') => ({ shell: true, command: `echo $$ > ${file}; exec seq 1 ${LINES}` })
export const numbersText = (): Buffer => Buffer.from(Array.from({ length: LINES }, (_, index) => `${index + 1}\n`).join(''))

export const numbersPid = async (server: Pick<RexdServer, 'root'>, file = 'pid'): Promise<number> => pidIn(join(server.root, file))

const writtenBy = async (pid: number): Promise<number> => {
  const text = await readFile(`/proc/${pid}/io`, 'latin1').catch(() => '')
  return Number(/^wchar: (\d+)$/m.exec(text)?.[1] ?? -1)
}

/** Number of bytes that the program wrote until it paused for more than a second. -1 after its end. */
export const writtenWhenHeld = async (pid: number): Promise<number> => {
  let before = await writtenBy(pid)
  for (let still = 0; still < 12;) {
    await sleep(100)
    const now = await writtenBy(pid)
    still = now === before ? still + 1 : 0
    before = now
  }
  return before
}

/** Polls by POST for all events after `cursor`, until the exit. */
export const pollToExit = async (
  server: Reached,
  session_id: string,
  cursor: number,
): Promise<{ events: Notification[]; gaps: object[] }> => {
  const [events, gaps]: [Notification[], object[]] = [[], []]
  for (let at = cursor; events.at(-1)?.method !== 'exec.exit';) {
    const answer = await post(server, 'session.events', { session_id, cursor: at, timeout_ms: 2000 })
    if (answer.gap !== null) gaps.push(answer.gap)
    events.push(...answer.events)
    at = answer.cursor
  }
  return { events, gaps }
}

export const cursorsOf = (events: readonly Notification[]): number[] => events.map(({ params }) => params['cursor'] as number)

export const oneTo = (last: number): number[] => Array.from({ length: last }, (_, index) => index + 1)

/** The cursor of the last event, with which a client can resume. */
export const cursorOf = ({ events }: SocketCaller): number => (events.at(-1)?.params['cursor'] ?? 0) as number

/** Memory of a process, in bytes. */
export const memoryOf = async (pid: number): Promise<number> => {
  const status = await readFile(`/proc/${pid}/status`, 'latin1')
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) * 1024
}
