export type RouteCategory = 'status' | 'identity' | 'contacts' | 'mesh' | 'direct' | 'exec' | 'runs' | 'diagnostics'

/** The public description of one route. */
export interface Route {
  readonly method: 'GET' | 'POST'
  /** A name in braces stands for a segment without a slash. */
  readonly path: string
  /** The command that uses the route, or null if absent. */
  readonly cli: string | null
  readonly description: string
  readonly category: RouteCategory
}

type Row = readonly [method: Route['method'], path: string, category: RouteCategory, cli: Route['cli'], description: string]

const ROWS = [
  ['GET', '/health', 'status', null, 'Whether the daemon works; needs no token'],
  ['GET', '/routes', 'status', 'x0x routes', 'This list'],
  ['GET', '/openapi.json', 'status', null, 'OpenAPI 3.1 document of this door'],
  ['GET', '/agent', 'identity', 'x0x id', 'Who this daemon is'],
  ['GET', '/agent/card', 'identity', 'x0x card', 'A freshly signed card of this agent'],
  ['POST', '/agent/card/import', 'contacts', 'x0x contacts import', "Verify another agent's card and keep it as a contact"],
  ['POST', '/agent/revoke', 'identity', 'x0x id revoke', 'Revoke this agent, or its presence on one machine, for ever'],
  ['POST', '/keys/rotate-token', 'identity', 'x0x keys rotate-token', 'Make a secret of local callers anew'],
  ['GET', '/contacts', 'contacts', 'x0x contacts list', 'Contacts, their trust and their pins'],
  ['POST', '/contacts/meet', 'contacts', 'x0x invite, x0x join', 'Know, trust and pin, in one step, an agent whose codes fitted'],
  ['POST', '/contacts/trust', 'contacts', 'x0x contacts trust', "Set a contact's trust level"],
  ['POST', '/contacts/pin', 'contacts', 'x0x contacts pin', 'Pin a contact to a machine'],
  ['POST', '/contacts/unpin', 'contacts', 'x0x contacts unpin', 'Remove a pin'],
  ['POST', '/contacts/label', 'contacts', 'x0x contacts label', 'Give a contact labels, or take some away'],
  ['GET', '/contacts/select', 'contacts', 'x0x contacts select', 'Whom names, node sets, labels and groups mean'],
  ['POST', '/contacts/remove', 'contacts', 'x0x contacts remove', 'Forget a contact'],
  ['GET', '/trust/evaluate', 'contacts', 'x0x trust evaluate', 'What the trust rules say of an agent on a machine now, and why'],
  ['GET', '/peers', 'mesh', 'x0x peers', 'Connected and discovered peers'],
  ['POST', '/agents/connect', 'mesh', null, 'Dial an agent and prove the link'],
  ['POST', '/agents/ping', 'mesh', 'x0x ping', 'Whether an agent answers, how fast, by which way, and of which version it is'],
  ['POST', '/direct/send', 'direct', 'x0x direct send', 'Send a direct message'],
  ['GET', '/direct/events', 'direct', 'x0x direct listen', 'Direct messages as they arrive (server-sent events)'],
  ['POST', '/exec/run', 'exec', 'x0x exec', 'Run a command on an agent'],
  ['POST', '/exec/fanout', 'exec', 'x0x exec', 'Run a command on many agents, and tell what became of each'],
  ['POST', '/exec/cancel', 'exec', 'x0x exec cancel', 'Cancel a run, or a fan-out, that this daemon asked for'],
  ['GET', '/exec/rules', 'exec', 'x0x acl mine', 'Which commands this agent may run on an agent, as that one tells it'],
  ['GET', '/exec/output', 'exec', 'x0x ui', 'What a run that this daemon asked for has written so far'],
  ['GET', '/exec/sessions', 'exec', 'x0x exec sessions', 'Runs that this daemon asked for and that have not ended'],
  ['POST', '/exec/incoming', 'exec', 'x0x exec sessions --incoming', 'What runs here for other agents'],
  ['POST', '/exec/incoming/cancel', 'exec', 'x0x exec cancel', 'End a run that another agent asked for'],
  ['GET', '/exec/events', 'exec', 'x0x events', 'What became of runs that this daemon asked for (JSON, or server-sent events)'],
  ['GET', '/runs', 'runs', 'x0x runs', 'Detached runs that this daemon asked for'],
  ['GET', '/runs/{request_id}', 'runs', null, 'One of them'],
  ['GET', '/runs/{request_id}/output', 'runs', 'x0x attach', 'What it has written, from a byte on, and what it writes until it is over'],
  ['POST', '/runs/wait', 'runs', 'x0x runs wait', 'Wait until some of them are over'],
  ['POST', '/runs/cancel', 'runs', 'x0x runs cancel', 'Ask one of them to end'],
  ['POST', '/runs/forget', 'runs', 'x0x runs forget', 'Let go of one, and of what its host keeps of it'],
  ['GET', '/diagnostics/exec', 'diagnostics', 'x0x diagnostics exec', 'Counters of the executing side and of the asking side'],
  ['GET', '/diagnostics/dm', 'diagnostics', 'x0x diagnostics dm', 'Counters of links and messages'],
  ['GET', '/metrics', 'diagnostics', null, "Counters in Prometheus' text format; the metrics token is enough"],
  ['GET', '/diagnostics/mesh', 'diagnostics', 'x0x diagnostics mesh', 'Listening addresses, connections, discovery'],
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

/** The path in the syntax of the router. */
export const urlOf = ({ path }: Route): string => path.replaceAll(NAME_IN_PATH, ':$1')

export const isPathOf = ({ path }: Route, requested: string): boolean =>
  new RegExp(`^${path.replaceAll('.', '\\.').replaceAll(NAME_IN_PATH, '[^/]+')}$`).test(requested)
