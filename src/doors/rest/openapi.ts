import type { FastifyDynamicSwaggerOptions } from '@fastify/swagger'
import { jsonSchemaTransform, jsonSchemaTransformObject } from 'fastify-type-provider-zod'

import { OPERATOR_PROOF_HEADER } from '../../identity/operator-proof.ts'
import type { Definition } from './definition.ts'
import type { Route } from './routes.ts'
import { failure } from './schemas.ts'

/** The document's frame; its routes and schemas come from what is registered. */
export const openapi = (init: { version: string }): FastifyDynamicSwaggerOptions => ({
  openapi: {
    openapi: '3.1.0',
    info: { title: 'x0x', description: 'The local door of an x0x daemon.', version: init.version, license: { name: 'Apache-2.0' } },
    components: {
      securitySchemes: {
        token: { type: 'http', scheme: 'bearer', description: "The content of the data directory's file api-token." },
        proof: { type: 'apiKey', in: 'header', name: OPERATOR_PROOF_HEADER, description: "An operator's proof over the body." },
      },
    },
  },
  transform: jsonSchemaTransform,
  transformObject: jsonSchemaTransformObject,
})

const streamedContent = (definition: Definition): object =>
  Object.fromEntries(Object.entries(definition.streams ?? {}).map(([type, schema]) => [type, { schema }]))

/** Alternatives, each with all that it needs. */
const securityOf = ({ open, proof }: Definition): object[] => [
  ...(open === true || proof === 'needed' ? [] : [{ token: [] }]),
  ...(proof === undefined ? [] : [{ token: [], proof: [] }]),
]

/** What fastify and the document need of a route. */
export const schemaOf = (row: Route, definition: Definition): object => ({
  operationId: `${row.method.toLowerCase()}${row.path.replace(/[/.](\w)/g, (_match, letter: string) => letter.toUpperCase())}`,
  summary: row.description,
  tags: [row.category],
  security: securityOf(definition),
  ...(definition.body === undefined ? {} : { body: definition.body }),
  ...(definition.takesLines === true ? { consumes: ['application/json', 'application/x-ndjson'] } : {}),
  response: {
    200: {
      description: 'As asked.',
      content: { 'application/json': { schema: definition.response }, ...streamedContent(definition) },
    },
    default: { description: 'An error of the table.', content: { 'application/json': { schema: failure } } },
  },
})
