import { Counters } from '../base/metrics.ts'

/** The counters of `/diagnostics/dm` with their help texts. `docs/observability.md` is generated from them. */
export const DM_COUNTERS = {
  links_opened: 'Link handshakes that both sides completed',
  links_closed: 'Links that ended',
  links_failed: 'Link handshakes that failed on either side',
  links_rejected: 'Links that the trust rules reject',
  handshakes_refused: 'Handshakes refused unread because of a rate limit',
  streams_opened: 'Streams opened to a peer',
  streams_accepted: 'Streams accepted from a peer',
  streams_refused: 'Streams refused because of no link, too many waiting streams, or no nonce',
  sealed_frames_sent: 'Encrypted frames sent',
  sealed_frames_received: 'Encrypted frames received and decrypted',
  sealed_bytes_sent: 'Bytes of encrypted frames sent',
  sealed_bytes_received: 'Bytes of encrypted frames received and decrypted',
  malformed_frames: 'Invalid frames, each of which ended its stream',
  unknown_prefix: 'Messages dropped because their type is unknown',
  trust_rejected: 'Direct messages and revocations that the trust rules refused',
  messages_sent: 'Direct messages sent',
  messages_delivered: 'Direct messages delivered to at least one listener',
  messages_without_listener: 'Direct messages accepted without a listener',
  receipts_received: 'Receipts received for sent messages',
  listeners_cut_off: 'Listeners disconnected because they were too slow',
  pings_answered: 'Pings of accepted agents that were answered',
  pings_ignored: 'Pings that were ignored: the agent is not accepted, or sent too many',
  revocations_received: 'Lists of revocations received',
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
