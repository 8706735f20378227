import { existsSync, readFileSync } from 'node:fs'

const hasMachineId = existsSync('/etc/machine-id') && /^[0-9a-f]{32}$/.test(readFileSync('/etc/machine-id', 'utf8').trim())

/** The files in the directory of a stopped daemon: its identity, its settings and its request log. */
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
