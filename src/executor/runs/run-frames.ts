import type { RunCaps } from '../../policy/permit.ts'
import { execFrame, type ExecFrame } from '../../protocol/exec.ts'
import type { RequestId } from '../../protocol/ids.ts'
import type { StdinFeed } from './stdin-feed.ts'
import { warningText, type Warning } from './warning-text.ts'

export const warningFrame = (request_id: RequestId, warning: Warning, caps: RunCaps | null): ExecFrame => ({
  type: 'warning',
  request_id,
  kind: warning.kind,
  message: warningText(warning, caps),
})

/** How far stdin has come, and how much of it was taken: what a requester needs to go on. */
export const greetingFrames = (request_id: RequestId, stdin: Pick<StdinFeed, 'received' | 'acked'> | null): Uint8Array[] => {
  const { received, acked } = stdin ?? { received: 0, acked: 0 }
  const frames: ExecFrame[] = [
    { type: 'resumed', request_id, stdin: received },
    { type: 'ack', request_id, stdin: acked, stdout: 0, stderr: 0 },
  ]
  return frames.map((frame) => execFrame.encode(frame))
}
