export type RouteCategory = 'status' | 'identity' | 'contacts' | 'mesh' | 'direct' | 'exec' | 'files' | 'runs' | 'diagnostics'

/** The public description of one route. */
export interface Route {
  readonly method: 'GET' | 'POST' | 'PUT'
  /** A name in braces matches a segment without a slash. */
  readonly path: string
  /** The command that uses the route, or null if absent. */
  readonly cli: string | null
  readonly description: string
  readonly category: RouteCategory
}

type Row = readonly [method: Route['method'], path: string, category: RouteCategory, cli: Route['cli'], description: string]

const ROWS = [
  ['GET', '/health', 'status', null, 'Report whether the daemon works; needs no token'],
  ['GET', '/routes', 'status', 'x0x routes', 'List the routes'],
  ['GET', '/openapi.json', 'status', null, 'Return the OpenAPI 3.1 document of this API'],
  ['GET', '/agent', 'identity', 'x0x id', 'Describe the agent of this daemon'],
  ['GET', '/agent/card', 'identity', 'x0x card', 'Return a newly signed card of this agent'],
  ['POST', '/agent/card/import', 'contacts', 'x0x contacts import', "Verify another agent's card and save it as a contact"],
  ['POST', '/agent/revoke', 'identity', 'x0x id revoke', 'Revoke this agent, or its presence on one machine, permanently'],
  ['POST', '/keys/rotate-token', 'identity', 'x0x keys rotate-token', 'Replace a secret of local clients'],
  ['POST', '/acl/sign', 'identity', 'x0x acl sign', 'Sign the hash of an ACL for hosts that accept it'],
  ['GET', '/contacts', 'contacts', 'x0x contacts list', 'List contacts, with trust levels and pins'],
  ['POST', '/contacts/meet', 'contacts', 'x0x invite, x0x join', 'Save, trust and pin a newly paired agent in one step'],
  ['POST', '/contacts/trust', 'contacts', 'x0x contacts trust', "Set a contact's trust level"],
  ['POST', '/contacts/pin', 'contacts', 'x0x contacts pin', 'Pin a contact to a machine'],
  ['POST', '/contacts/unpin', 'contacts', 'x0x contacts unpin', 'Remove a pin'],
  ['POST', '/contacts/label', 'contacts', 'x0x contacts label', 'Set or remove labels of a contact'],
  ['GET', '/contacts/select', 'contacts', 'x0x contacts select', 'List the hosts that host words select'],
  ['POST', '/contacts/remove', 'contacts', 'x0x contacts remove', 'Remove a contact'],
  ['POST', '/enrol/create', 'contacts', 'x0x enrol create', 'Create an enrolment key, with which hosts become contacts'],
  ['POST', '/enrol/list', 'contacts', 'x0x enrol list', 'List enrolment keys and the hosts that used them'],
  ['POST', '/enrol/revoke', 'contacts', 'x0x enrol revoke', 'Revoke an enrolment key'],
  ['GET', '/trust/evaluate', 'contacts', 'x0x trust evaluate', 'Explain the trust decision for an agent on a machine'],
  ['GET', '/peers', 'mesh', 'x0x peers', 'List connected and discovered peers'],
  ['POST', '/agents/connect', 'mesh', null, 'Connect to an agent and authenticate the link'],
  ['POST', '/agents/ping', 'mesh', 'x0x ping', 'Measure latency, path, version and clock difference of an agent'],
  ['POST', '/direct/send', 'direct', 'x0x direct send', 'Send a direct message'],
  ['GET', '/direct/events', 'direct', 'x0x direct listen', 'Stream direct messages (server-sent events)'],
  ['POST', '/exec/run', 'exec', 'x0x exec', 'Run a command on an agent'],
  ['POST', '/exec/terminal', 'exec', 'x0x exec', 'Run a command on an agent, on a terminal'],
  ['POST', '/exec/fanout', 'exec', 'x0x exec', 'Run a command on many agents, with a result for each'],
  ['POST', '/exec/cancel', 'exec', 'x0x exec cancel', 'Cancel a run or fan-out that this daemon requested'],
  ['GET', '/exec/rules', 'exec', 'x0x acl mine', 'Ask an agent which commands this agent may run there'],
  ['GET', '/exec/output', 'exec', 'x0x ui', 'Return the latest output of a run that this daemon requested'],
  ['GET', '/exec/sessions', 'exec', 'x0x exec sessions', 'List unfinished runs and fan-outs that this daemon requested'],
  ['POST', '/exec/incoming', 'exec', 'x0x exec sessions --incoming', 'List runs on this machine for other agents'],
  ['POST', '/exec/incoming/cancel', 'exec', 'x0x exec cancel', 'End a run on this machine for another agent'],
  ['GET', '/exec/events', 'exec', 'x0x events', 'Return the events of runs that this daemon requested'],
  ['GET', '/agents/{agent}/files', 'files', 'x0x cp, x0x ls', 'Return a file of an agent, its status, its digest or a directory listing'],
  ['PUT', '/agents/{agent}/files', 'files', 'x0x cp', 'Write a file of an agent'],
  ['POST', '/agents/{agent}/files/append', 'files', null, 'Add bytes to a file of an agent'],
  ['POST', '/agents/{agent}/files/directory', 'files', 'x0x cp', 'Create a directory on an agent'],
  ['GET', '/runs', 'runs', 'x0x runs', 'List detached runs that this daemon requested'],
  ['GET', '/runs/{request_id}', 'runs', null, 'Return one detached run'],
  ['GET', '/runs/{request_id}/output', 'runs', 'x0x attach', 'Return or follow the output of a detached run'],
  ['POST', '/runs/wait', 'runs', 'x0x runs wait', 'Wait until detached runs have ended'],
  ['POST', '/runs/cancel', 'runs', 'x0x runs cancel', 'End a detached run'],
  ['POST', '/runs/forget', 'runs', 'x0x runs forget', 'Forget a detached run and delete its output'],
  ['GET', '/diagnostics/exec', 'diagnostics', 'x0x diagnostics exec', 'Return counters of runs as target and as requester'],
  ['GET', '/diagnostics/dm', 'diagnostics', 'x0x diagnostics dm', 'Return counters of links and messages'],
  ['GET', '/metrics', 'diagnostics', null, "Return all counters in Prometheus' text format"],
  ['GET', '/diagnostics/mesh', 'diagnostics', 'x0x diagnostics mesh', 'Return addresses, connections and discovery counters'],
] as const satisfies readonly Row[]

type KeyOf<R> = R extends readonly [infer Method extends string, infer Path extends string, ...unknown[]] ? `${Method} ${Path}` : never
export type RouteKey = KeyOf<(typeof ROWS)[number]>

/**
 * Every route of the REST interface. `GET /routes` and the OpenAPI document are made from this list. A handler without a row does not
 * compile, nor a row without a handler.
 */
export const ROUTES: readonly Route[] = ROWS.map(([method, path, category, cli, description]) => ({
  method,
  path,
  cli,
  description,
  category,
}))

const NAME_IN_PATH = /\{(\w+)\}/g

export const urlOf = ({ path }: Route): string => path.replaceAll(NAME_IN_PATH, ':$1')

export const isPathOf = ({ path }: Route, requested: string): boolean =>
  new RegExp(`^${path.replaceAll('.', '\\.').replaceAll(NAME_IN_PATH, '[^/]+')}$`).test(requested)
