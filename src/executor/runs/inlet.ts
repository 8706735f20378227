import { errorText } from '../../base/errors.ts'
import type { ExecCounters } from '../../diagnostics/exec-counters.ts'
import { execFrame } from '../../protocol/exec.ts'
import type { Run } from './run.ts'

/** A later frame of a peer on the stream of its run. Whatever it is, the peer is still there. */
export const receiveFrame = (run: Run, bytes: Uint8Array, counters: Pick<ExecCounters, 'count'>): void => {
  run.renew()
  try {
    const frame = execFrame.decode(bytes)
    if (frame.type === 'request' || frame.type === 'exit') return run.violated(`a second ${frame.type}`)
    // Another run's frame on this run's stream touches neither.
    if (frame.request_id !== run.requestId) return counters.count('malformed_frames')
    switch (frame.type) {
      case 'lease_renew':
        return
      case 'cancel':
        return run.end('cancelled')
      case 'ack':
        return run.acknowledged(frame)
      case 'stdin':
        return run.acceptStdin(frame)
      default:
        return run.violated(`${frame.type} from a requester`)
    }
  } catch (error) {
    run.violated(errorText(error))
  }
}
