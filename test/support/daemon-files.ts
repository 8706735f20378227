/** What a daemon leaves in its directory when it has stopped: who it is, what it is told and what it has asked. */
export const FILES_OF_STOPPED = [
  'agent.key',
  'api-token',
  'approvals.jsonl',
  'daemon.lock',
  'desk.lock',
  'exec-approvals.json',
  'machine.key',
  'operator.key',
  'requests.jsonl',
] as const
