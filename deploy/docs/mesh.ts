import { PENALTY_MS, type Violation, VIOLATIONS } from '../../src/mesh/penalties.ts'
import { METERED, type Metered, type Rate, RATES } from '../../src/protocol/limits/mesh.ts'
import { code, table } from './table.ts'

/** What each rate limits. */
const METERED_TEXT: Readonly<Record<Metered, string>> = {
  bytes: 'received bytes',
  frames: 'frames of the muxer',
  pings: 'pings of the muxer',
  streams: 'opened streams',
  resets: 'reset streams',
  messages: 'gossip messages, or empty batches',
  handshakes: 'started link handshakes',
  connections: 'started connections',
}

/** What each violation is. */
const VIOLATION_TEXT: Readonly<Record<Violation, string>> = {
  bad_signature: 'a handshake has a wrong signature or MAC',
  malformed: 'a handshake has a malformed message',
  handshake_failed: 'a handshake started and did not become a link (for named machines: except when the connection was lost)',
  denied: 'a request or message came from an agent that trust does not accept',
  flood: 'a peer exceeded a rate',
  bad_gossip: 'a presence is invalid or has a wrong signature',
  unfinished: 'a connection ended before its machine was proven',
}

const MIB = 1024 * 1024
const GIB = 1024 * MIB
const size = (bytes: number): string => (bytes >= GIB ? `${bytes / GIB} GiB` : `${bytes / MIB} MiB`)
const rateText = (what: Metered, { burst, perSecond }: Rate): string =>
  what === 'bytes' ? `${size(burst)}, ${size(perSecond)}/s` : `${burst.toLocaleString('en')}, ${perSecond.toLocaleString('en')}/s`

/** Rate limits of each peer class: a burst, then a rate. */
export const peerRates = (): string =>
  table(
    ['', 'unlisted peers of one host', 'a named machine', 'an accepted machine'],
    METERED.map((what) => [
      METERED_TEXT[what],
      ...(['stranger', 'named', 'accepted'] as const).map((peer) => rateText(what, RATES[peer][what])),
    ]),
  )

/** Violations, with the seconds that each adds to the penalty of its source. */
export const violations = (): string =>
  table(
    ['violation', 'adds', 'when'],
    VIOLATIONS.toSorted((one, other) => PENALTY_MS[other] - PENALTY_MS[one]).map((name) => [
      code(name),
      `${PENALTY_MS[name] / 1000} s`,
      VIOLATION_TEXT[name],
    ]),
  )
