import * as z from 'zod'
import { SELECTED_HOSTS } from '../../protocol/api-answers.ts'
import { MAX_FANOUT_HOSTS } from '../../protocol/fanout-limits.ts'
import { MAX_HOST_WORDS } from '../../protocol/fleet-limits.ts'
import { zodOf } from '../zod-of.ts'
import { agentName } from './schemas.ts'

/** What is wrong with a label is said by who writes it down. */
export const contactLabel = z.strictObject({
  contact: agentName,
  labels: z.record(z.string(), z.string().nullable()).describe('null takes the label away'),
})

export const hostWord = z
  .string()
  .max(MAX_HOST_WORDS)
  .describe('a name, an id, a node set such as web[1-20,30], @group, key=value, or several with commas between; ! before one leaves it out')

/** `?expr=a&expr=b`; one alone is no list where a query is read. */
export const selectQuery = z.strictObject({
  expr: z
    .union([hostWord, z.array(hostWord).min(1).max(MAX_FANOUT_HOSTS)])
    .describe('words that say whom to ask')
    .transform((words) => (typeof words === 'string' ? [words] : words)),
})

export const selectedHosts = zodOf(SELECTED_HOSTS).meta({ id: 'SelectedHosts' })
