import type { TestContext } from 'node:test'

import type { Household } from '../../test/support/sandboxed.ts'

/** What has the files of a sandbox: this host, or the image of a container. */
export type FormName = 'host' | 'image'

/** One thing that a run tries to do beyond its sandbox. */
export interface Row {
  readonly name: string
  readonly run: (t: TestContext, house: Household, form: FormName) => Promise<void>
  /** Why it is not tried on this host. */
  readonly skip: string | null
  /** Where it means nothing in the other. */
  readonly only: FormName | null
}

export const row = (
  name: string,
  run: Row['run'],
  { skip, only = null }: { readonly skip?: string | false | null | undefined; readonly only?: FormName | null } = {},
): Row => ({
  name,
  run,
  skip: skip === false ? null : (skip ?? null),
  only,
})
