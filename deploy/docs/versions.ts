import { PORT_VERSION } from '../../src/executor-api/messages.ts'
import { DESK_VERSION } from '../../src/protocol/desk/messages.ts'
import { LINK_VERSION } from '../../src/protocol/limits/wire.ts'
import { table } from './table.ts'

/** Protocols that need the same version on both sides. For each, the two sides, the version, and the effect of a difference. */
const PROTOCOLS: readonly (readonly [between: string, version: number, otherwise: string])[] = [
  ['two machines (the link)', LINK_VERSION, 'No command runs. The error `upgrade` names both versions and the machine to upgrade.'],
  [
    'the two processes of a daemon',
    PORT_VERSION,
    'The network process ends with status 1. systemd starts it again every 2 seconds, and `x0xd` with growing pauses up to 10 seconds. Both logs name both versions.',
  ],
  ['the approval service and the programs that use it', DESK_VERSION, 'The connection ends. Each run that needs an approval is denied.'],
]

export const protocolVersions = (): string =>
  table(
    ['Between', 'Version', 'If the versions differ'],
    PROTOCOLS.map(([between, version, otherwise]) => [between, String(version), otherwise]),
  )
