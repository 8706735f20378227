import { ERROR_TABLE } from '../../base/errors.ts'
import { LOG_LEVELS } from '../../base/log-level.ts'
import { VERSION } from '../../base/version.ts'
import { SETTING_KEYS } from '../../config/settings.ts'
import { OPERATIONS } from '../../executor-api/messages.ts'
import { JOURNAL_EVENTS } from '../../journal/events.ts'
import {
  CONTAINMENTS,
  CONTAINMENT_CHOICES,
  DENIAL_REASONS,
  LOCAL_DOORS,
  RUN_STATES,
  TRUST_CAUSES,
  TRUST_DECISIONS,
  TRUST_LEVELS,
  WAITING_REASONS,
  WARNING_KINDS,
} from '../../protocol/reasons.ts'

/** Of lists that have no name. */
const FEW_WORDS =
  'acl_missing missing_exec_section enabled inbound outbound tcp noise yamux mdns contact bootstrap x0xd x0xd-network rexd x0x-desk taken unchanged refused invalid opened closed native noble exec_run'.split(
    ' ',
  )

/** Values that are the same in every installation, and so tell nothing of this one. */
export const KNOWN_WORDS: ReadonlySet<string> = new Set([
  ...JOURNAL_EVENTS,
  ...Object.keys(ERROR_TABLE),
  ...LOG_LEVELS,
  ...SETTING_KEYS,
  ...OPERATIONS,
  ...CONTAINMENTS,
  ...CONTAINMENT_CHOICES,
  ...DENIAL_REASONS,
  ...LOCAL_DOORS,
  ...RUN_STATES,
  ...TRUST_CAUSES,
  ...TRUST_DECISIONS,
  ...TRUST_LEVELS,
  ...WAITING_REASONS,
  ...WARNING_KINDS,
  VERSION,
  ...FEW_WORDS,
])
