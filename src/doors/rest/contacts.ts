import type * as z from 'zod'
import type { Operation } from '../../executor-api/messages.ts'
import { encodeCardLink } from '../../identity/card.ts'
import { announceable } from '../../mesh/addresses.ts'
import { foldNodeSet } from '../../protocol/hosts/node-set.ts'
import { CARD_TTL_MS } from '../../protocol/limits/wire.ts'
import {
  aclSign,
  aclSigned,
  agentAnswer,
  cardAnswer,
  contactAnswer,
  contactsAnswer,
  enrolKeyAnswer,
  enrolKeysAnswer,
  revokeAnswer,
  tokenRotate,
  tokenRotated,
  trustEvaluation,
  trustQuery,
} from './answer-schemas.ts'
import type { RestServices, RestInit } from './services.ts'
import { type Definition, type Definitions, define } from './definition.ts'
import {
  cardImport,
  contactLabel,
  contactMeet,
  contactPin,
  contactRemove,
  contactTrust,
  enrolCreate,
  enrolList,
  enrolRevoke,
  identityRevoke,
  selectQuery,
  selectedHosts,
} from './schemas.ts'
import { targetOf } from './run-request.ts'

/** An operation for operators. The executor gets the body unchanged, because it alone can check the operator proof. */
export const operatorRoute = (executor: RestServices['executor'], operation: Operation, body: z.ZodType, response: z.ZodType): Definition =>
  define({
    body,
    response,
    proof: 'needed',
    handle: async ({ rawBody, proof }) => ({ ok: true, ...((await executor.operate(operation, rawBody, proof)) as object) }),
  })

export const contactRoutes = (services: RestServices, init: RestInit) => {
  const { executor, node } = services
  const operation = (name: Operation, body: z.ZodType): Definition => operatorRoute(executor, name, body, contactAnswer)
  return {
    'GET /agent': define({
      response: agentAnswer,
      handle: async () => ({
        ok: true,
        agent_id: executor.identity.agentId,
        machine_id: executor.identity.machineId,
        name: init.displayName,
        addresses: announceable(node.addresses()),
        version: init.version,
        revoked: executor.snapshot.self_revoked,
      }),
    }),
    'GET /agent/card': define({
      response: cardAnswer,
      handle: async () => {
        const card = { kind: 'card', name: init.displayName, addresses: announceable(node.addresses()), ttl_ms: CARD_TTL_MS } as const
        return { ok: true, link: encodeCardLink(await executor.signCard(card)) }
      },
    }),
    'GET /contacts': define({
      response: contactsAnswer,
      handle: async () => ({ ok: true, contacts: await executor.query('contacts'), groups: executor.snapshot.groups }),
    }),
    'GET /trust/evaluate': define({
      query: trustQuery,
      response: trustEvaluation,
      handle: async ({ query }) => ({
        ok: true as const,
        ...(await executor.evaluateTrust(targetOf(services.directory, query), query.machine_id)),
      }),
    }),
    'GET /contacts/select': define({
      query: selectQuery,
      response: selectedHosts,
      handle: async ({ query }) => {
        const hosts = services.directory.select(query.expr)
        return { ok: true as const, hosts, expression: foldNodeSet(hosts.map(({ host }) => host)) }
      },
    }),
    'POST /agent/card/import': operation('card_import', cardImport),
    'POST /agent/revoke': operatorRoute(executor, 'identity_revoke', identityRevoke, revokeAnswer),
    'POST /keys/rotate-token': operatorRoute(executor, 'token_rotate', tokenRotate, tokenRotated),
    'POST /acl/sign': operatorRoute(executor, 'acl_sign', aclSign, aclSigned),
    'POST /enrol/create': operatorRoute(executor, 'enrol_create', enrolCreate, enrolKeyAnswer),
    'POST /enrol/list': operatorRoute(executor, 'enrol_list', enrolList, enrolKeysAnswer),
    'POST /enrol/revoke': operatorRoute(executor, 'enrol_revoke', enrolRevoke, enrolKeyAnswer),
    'POST /contacts/meet': operation('contact_meet', contactMeet),
    'POST /contacts/trust': operation('contact_trust', contactTrust),
    'POST /contacts/pin': operation('contact_pin', contactPin),
    'POST /contacts/unpin': operation('contact_unpin', contactPin),
    'POST /contacts/label': operation('contact_label', contactLabel),
    'POST /contacts/remove': operation('contact_remove', contactRemove),
  } satisfies Definitions
}
