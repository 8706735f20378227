import type { RunCaps } from '../../policy/permit.ts'
import { execFrame, type ExecFrame } from '../../protocol/exec.ts'
import type { RequestId } from '../../protocol/ids.ts'
import type { WarningKind } from '../../protocol/reasons.ts'
import type { StdinFeed } from './stdin-feed.ts'
import { nearEndText, WARNING_TEXT } from './warning-text.ts'

export const warningFrame = (request_id: RequestId, kind: WarningKind, caps: RunCaps | null): ExecFrame => {
  const message = kind === 'duration_approaching_cap' && caps !== null ? nearEndText(caps) : WARNING_TEXT[kind]
  return { type: 'warning', request_id, kind, message }
}

/** How far stdin has come, and how much of it was taken: what a requester needs to go on. */
export const greetingFrames = (request_id: RequestId, stdin: Pick<StdinFeed, 'received' | 'acked'> | null): Uint8Array[] => {
  const { received, acked } = stdin ?? { received: 0, acked: 0 }
  const frames: ExecFrame[] = [
    { type: 'resumed', request_id, stdin: received },
    { type: 'ack', request_id, stdin: acked, stdout: 0, stderr: 0 },
  ]
  return frames.map((frame) => execFrame.encode(frame))
}
