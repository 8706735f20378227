import { Counters } from '../base/metrics.ts'

/** The counters of `/diagnostics/dm`, each with its description. */
export const DM_COUNTERS = {
  links_opened: 'link handshakes that both sides finished',
  links_closed: 'links that ended, for whatever reason',
  links_failed: 'link handshakes that failed on either side',
  links_rejected: 'links whose peer the trust rules reject',
  handshakes_refused: 'handshakes refused before their first byte was read, for want of budget',
  streams_opened: 'streams opened towards a peer',
  streams_accepted: 'streams accepted from a peer',
  streams_refused: 'streams of a peer that had no link, too many waiting, or no nonce',
  sealed_frames_sent: 'sealed frames sent',
  sealed_frames_received: 'sealed frames received and opened',
  sealed_bytes_sent: 'bytes of sealed frames that were sent',
  sealed_bytes_received: 'bytes of sealed frames that were received and opened',
  malformed_frames: 'frames that did not decode, did not open or named others; each ended its stream',
  unknown_prefix: 'bodies dropped because no room of ours knows their prefix',
  trust_rejected: 'direct messages and revocations refused by the trust rules',
  messages_sent: 'direct messages sent',
  messages_delivered: 'direct messages handed to at least one listener',
  messages_without_listener: 'direct messages accepted while nobody listened',
  receipts_received: 'receipts received for our messages',
  listeners_cut_off: 'listeners of direct messages that fell too far behind',
  pings_answered: 'pings of accepted agents that were answered',
  pings_ignored: 'pings of agents that are not accepted, or that came too fast',
  revocations_received: 'lists of revocations received',
} as const satisfies Record<string, string>
export type DmCounter = keyof typeof DM_COUNTERS

/** All counters, with failed handshakes by error code. */
export type DmDiagnostics = Record<DmCounter, number> & { readonly link_failures: Record<string, number> }

export class DmCounters extends Counters<DmCounter> {
  readonly #failures = new Map<string, number>()

  constructor() {
    super(DM_COUNTERS)
  }

  linkFailed(code: string): void {
    this.add('links_failed')
    this.#failures.set(code, (this.#failures.get(code) ?? 0) + 1)
  }

  override snapshot(): DmDiagnostics {
    return { ...super.snapshot(), link_failures: Object.fromEntries(this.#failures) }
  }
}
