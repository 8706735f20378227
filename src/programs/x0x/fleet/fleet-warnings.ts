import type { FanoutEventJson } from '../../../protocol/fanout.ts'
import { foldNodeSet } from '../../../protocol/node-set.ts'
import type { WarningKind } from '../../../protocol/reasons.ts'
import { KILLED_BY } from '../outcome.ts'

type Warning = Extract<FanoutEventJson, { type: 'warning' }>

/** What ended a command is said with its end; that a cap is near, only where nothing else is said of it. */
const SAID_OTHERWISE: readonly WarningKind[] = ['cancelled', 'stdout_approaching_cap', 'stderr_approaching_cap', ...KILLED_BY]

/** Warnings of many hosts, each kind once. */
export class FleetWarnings {
  readonly #kinds = new Map<WarningKind, { readonly message: string; readonly hosts: string[] }>()

  add({ host, kind, message }: Warning): void {
    if (SAID_OTHERWISE.includes(kind)) return
    const same = this.#kinds.get(kind)
    if (same === undefined) this.#kinds.set(kind, { message, hosts: [host] })
    else same.hosts.push(host)
  }

  lines(): string[] {
    return [...this.#kinds].map(([kind, { message, hosts }]) => `warning: ${kind}: ${foldNodeSet(hosts)}: ${message}`)
  }
}
