import { Counters } from '../base/metrics.ts'

/** The counters of `/diagnostics/dm` with their help texts. `docs/observability.md` is generated from them. */
export const DM_COUNTERS = {
  links_opened: 'Completed link handshakes',
  links_closed: 'Links that ended',
  links_failed: 'Failed link handshakes',
  links_rejected: 'Links rejected by trust',
  handshakes_refused: 'Handshakes refused by a rate limit',
  streams_opened: 'Streams opened to peers',
  streams_accepted: 'Streams accepted from peers',
  streams_refused: 'Streams refused: no link, too many waiting, or no nonce',
  sealed_frames_sent: 'Encrypted frames sent',
  sealed_frames_received: 'Encrypted frames decrypted',
  sealed_bytes_sent: 'Bytes of encrypted frames sent',
  sealed_bytes_received: 'Bytes of encrypted frames decrypted',
  malformed_frames: 'Invalid frames, which ended their streams',
  unknown_prefix: 'Messages of unknown type, dropped',
  trust_rejected: 'Direct messages and revocations refused by trust',
  messages_sent: 'Direct messages sent',
  messages_delivered: 'Direct messages delivered to a listener',
  messages_without_listener: 'Direct messages without a listener',
  receipts_received: 'Receipts of sent messages',
  listeners_cut_off: 'Listeners disconnected because too slow',
  pings_answered: 'Answered pings',
  pings_ignored: 'Ignored pings: agent not accepted, or too many',
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
