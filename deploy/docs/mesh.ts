import { PENALTY_MS, type Violation, VIOLATIONS } from '../../src/mesh/penalties.ts'
import { code, table } from './table.ts'

/** Description of each violation. */
const VIOLATION_TEXT: Readonly<Record<Violation, string>> = {
  bad_signature: 'a handshake has a wrong signature or MAC',
  malformed: 'a handshake has a malformed message',
  handshake_failed: 'a handshake started and did not become a link (for named machines: except when the connection was lost)',
  denied: 'a request or message came from an agent that trust does not accept',
  flood: 'a peer exceeded a rate',
  bad_gossip: 'a presence is invalid or has a wrong signature',
  unfinished: 'a connection ended before its machine was proven',
}

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
