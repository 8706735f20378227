import type { TestContext } from 'node:test'

import type { Household } from '../../test/support/sandboxed.ts'

/** Source of the files in a sandbox: this host, or a container image. */
export type FormName = 'host' | 'image'

/** One attempt of a run to act outside its sandbox. */
export interface Row {
  readonly name: string
  readonly run: (t: TestContext, house: Household, form: FormName) => Promise<void>
  /** Reason why this host cannot run the test, or null. */
  readonly skip: string | null
  /** The only form in which the test makes sense, or null for both. */
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
