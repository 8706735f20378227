import * as z from 'zod'
import { OPERATOR_PROOF_HEADER } from '../../identity/operator-proof.ts'
import { DEFAULT_API_PORT } from '../../protocol/limits/daemon.ts'
import type { Definition } from './definition.ts'
import { ROUTES, type Route, type RouteKey } from './routes.ts'
import { failure } from './schemas.ts'

/** Collects schemas that have an ID, so that each appears once. */
class Components {
  readonly schemas: Record<string, object> = {}

  content(types: readonly (readonly [type: string, schema: z.ZodType])[], io: 'input' | 'output'): object {
    return Object.fromEntries(types.map(([type, schema]) => [type, { schema: this.#refer(schema, io) }]))
  }

  /** Makes one parameter of each key of an object. */
  parameters(place: 'query' | 'path', object: z.ZodObject | undefined): object[] {
    return Object.entries(object?.shape ?? {}).map(([name, schema]) => ({
      name,
      in: place,
      required: !schema.safeParse(undefined).success,
      schema: this.#refer(schema as z.ZodType, 'input'),
    }))
  }

  #refer(schema: z.ZodType, io: 'input' | 'output'): object {
    const text = JSON.stringify(z.toJSONSchema(schema, { io })).replaceAll('"#/$defs/', '"#/components/schemas/')
    const { $schema: _dialect, $defs = {}, ...json } = JSON.parse(text) as z.core.JSONSchema.BaseSchema
    Object.assign(this.schemas, $defs)
    return json
  }
}

/** Alternatives of security schemes; each lists all that it requires. */
const securityOf = ({ open, proof }: Definition): object[] => [
  ...(open === true || proof === 'needed' ? [] : [{ token: [] }]),
  ...(proof === undefined ? [] : [{ token: [], proof: [] }]),
]

const operationOf = (row: Route, definition: Definition, components: Components): object => {
  const { body, query, params, response, streams = {}, text, unavailable } = definition
  const { takesLines } = definition
  const bodyTypes = [
    ...(takesLines === 'always' ? [] : ['application/json']),
    ...(takesLines === undefined ? [] : ['application/x-ndjson']),
  ]
  const answers = Object.entries({
    ...(response && { 'application/json': response }),
    ...streams,
    ...(text !== undefined && { [text]: z.string() }),
  })
  return {
    operationId: `${row.method.toLowerCase()}${row.path.replaceAll(/[{}]/g, '').replace(/[/._](\w)/g, (_match, letter: string) => letter.toUpperCase())}`,
    summary: row.description,
    tags: [row.category],
    security: securityOf(definition),
    ...((query || params) && { parameters: [...components.parameters('path', params), ...components.parameters('query', query)] }),
    ...(definition.takesBytes === true && {
      requestBody: { required: true, content: { 'application/octet-stream': { schema: { type: 'string', format: 'binary' } } } },
    }),
    ...(body !== undefined && {
      requestBody: {
        required: true,
        content: components.content(
          bodyTypes.map((type) => [type, body]),
          'input',
        ),
      },
    }),
    responses: {
      200: { description: 'Success.', content: components.content(answers, 'output') },
      ...(unavailable && {
        503: {
          description: 'The daemon does not work.',
          content: components.content([['application/json', z.union([unavailable, failure])]], 'output'),
        },
      }),
      default: {
        description: 'An error. Its code is in the field error.',
        content: components.content([['application/json', failure]], 'output'),
      },
    },
  }
}

/** The OpenAPI document of all routes, made from the schemas that check requests. */
export const openapi = (init: { version: string }, definitions: Readonly<Record<RouteKey, Definition>>): object => {
  const components = new Components()
  const paths: Record<string, Record<string, object>> = {}
  for (const row of ROUTES)
    (paths[row.path] ??= {})[row.method.toLowerCase()] = operationOf(row, definitions[`${row.method} ${row.path}` as RouteKey], components)
  return {
    openapi: '3.1.0',
    info: {
      title: 'x0x',
      description: 'The REST interface of an x0x daemon on this machine.',
      version: init.version,
      license: { name: 'Apache License 2.0', identifier: 'Apache-2.0' },
    },
    servers: [
      {
        url: 'http://127.0.0.1:{port}',
        description: 'This machine only',
        variables: { port: { default: String(DEFAULT_API_PORT), description: "The daemon's --api-port" } },
      },
    ],
    components: {
      securitySchemes: {
        token: { type: 'http', scheme: 'bearer', description: 'The content of the file api-token in the data directory.' },
        proof: { type: 'apiKey', in: 'header', name: OPERATOR_PROOF_HEADER, description: 'Operator proof of the body.' },
      },
      schemas: components.schemas,
    },
    paths,
  }
}
