import { existsSync, readFileSync } from 'node:fs'

const hasMachineId = existsSync('/etc/machine-id') && /^[0-9a-f]{32}$/.test(readFileSync('/etc/machine-id', 'utf8').trim())

/** What a daemon leaves in its directory when it has stopped: who it is, what it is told and what it has asked. */
export const FILES_OF_STOPPED: readonly string[] = [
  'agent.key',
  'api-token',
  'approvals.jsonl',
  'daemon.lock',
  'desk.lock',
  'exec-approvals.json',
  ...(hasMachineId ? ['machine-id.hash'] : []),
  'machine.key',
  'operator.key',
  'requests.jsonl',
]
