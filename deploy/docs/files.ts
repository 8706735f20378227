import { type DataPaths, pathsIn } from '../../src/clients/paths.ts'
import { DETACHED_DIR } from '../../src/executor/detached/record-file.ts'
import { COPIES_DIRECTORY } from '../../src/process/private-copies.ts'
import { CONTAINMENT_FILE } from '../../src/process/process-trees.ts'
import { code, table } from './table.ts'

/** Contents of each file of the data directory. Files with the same text share a row. */
const CONTENT: Readonly<Record<Exclude<keyof DataPaths, 'dir'>, string>> = {
  agentKey: '[Keys](keys.md) of agent and machine. Back them up.',
  machineKey: '[Keys](keys.md) of agent and machine. Back them up.',
  operatorKey: 'Key that proves who the operator is.',
  machineIdHash: 'Hash of `/etc/machine-id`, to notice copied keys.',
  apiToken: 'Bearer token of the API.',
  metricsToken: 'Token for `GET /metrics`.',
  apiSocket: 'Socket and TCP port of the API.',
  apiPort: 'Socket and TCP port of the API.',
  contacts: 'Contacts, and revocations.',
  revocations: 'Contacts, and revocations.',
  groups: '[Groups](fleets.md) of contacts, written by you.',
  successions: 'Former and new keys of this agent.',
  enrolKeys: '[Enrolment](enrol.md): keys of an operator, and the enrolment of this machine.',
  enrolment: '[Enrolment](enrol.md): keys of an operator, and the enrolment of this machine.',
  config: '[Configuration](config.md), written by you.',
  execAcl: '[ACL](acl.md), written by you, and a copy of the ACL in force.',
  loadedAcl: '[ACL](acl.md), written by you, and a copy of the ACL in force.',
  aclVersion: 'Version of the last [signed ACL](fleet-acls.md) that took effect.',
  auditLogPath: 'Path of the last audit log, to notice another one.',
  outgoing: 'Request log: each request of this agent to others.',
  detachedRuns: 'Detached runs that this agent requested.',
  runs: 'Empty files that name the active runs.',
  approvals: '[Approval store](modes.md#the-approval-store): grants, lists and saved modes.',
  approvalsSocket: 'Socket of the approval service.',
  approvalsJournal: 'Approval log.',
  handoverSocket: 'Socket on which the daemon hears that `x0xd --replace` takes its place.',
  lock: 'Locks. Never remove them.',
  successorLock: 'Locks. Never remove them.',
  deskLock: 'Locks. Never remove them.',
  pid: 'Process IDs. The first word is the ID.',
  networkPid: 'Process IDs. The first word is the ID.',
  rexdPid: 'Process IDs. The first word is the ID.',
  successorPid: 'Process IDs. The first word is the ID.',
  deskPid: 'Process IDs. The first word is the ID.',
}

const OTHERS: Readonly<Record<string, string>> = {
  [`${DETACHED_DIR}/`]: 'Detached runs of other agents, with their output.',
  [CONTAINMENT_FILE]: 'Mechanism that holds the runs, for `x0xd --doctor`.',
  [`${COPIES_DIRECTORY}/`]: 'Private copies of programs, while they run.',
}

/** The files of a data directory. */
export const dataFiles = (): string => {
  const paths = pathsIn('/')
  const rows = new Map<string, string[]>()
  for (const [key, text] of Object.entries(CONTENT)) {
    const name = paths[key as keyof DataPaths].slice(1)
    rows.set(text, [...(rows.get(text) ?? []), code(key === 'runs' ? `${name}/` : name)])
  }
  return table(
    ['file', 'content'],
    [...[...rows].map(([text, names]) => [names.join(', '), text]), ...Object.entries(OTHERS).map(([name, text]) => [code(name), text])],
  )
}
