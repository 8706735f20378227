import { after, before, describe, test } from 'node:test'

import { needsPerl } from '../../test/support/perl-programs.ts'
import { noPodman } from '../../test/support/podman-image.ts'
import { household, noSandbox, type SandboxForm } from '../../test/support/sandboxed.ts'
import { FILE_ROWS } from './files-rows.ts'
import { imageForm } from './forms.ts'
import { IDENTITY_ROWS } from './identity-rows.ts'
import { NETWORK_ROWS } from './network-rows.ts'
import { PROCESS_ROWS } from './processes-rows.ts'
import type { FormName } from './row.ts'
import { TERMINAL_ROWS } from './terminals-rows.ts'

// Attempts of a run to act outside its sandbox. The programs in the sandbox come from this host or from a container image.

const ROWS = [...FILE_ROWS, ...IDENTITY_ROWS, ...NETWORK_ROWS, ...PROCESS_ROWS, ...TERMINAL_ROWS]
const NO_PERL = 'skip' in needsPerl ? needsPerl.skip : null
const FORMS: Readonly<Record<FormName, string | null>> = { host: noSandbox ?? NO_PERL, image: noPodman ?? NO_PERL }

for (const name of ['host', 'image'] as const)
  // Most tests mainly wait.
  describe(`with the programs of the ${name}`, { concurrency: 3 }, () => {
    let form: SandboxForm | null = null
    const ends: (() => Promise<void>)[] = []
    before(async () => {
      if (name === 'image' && FORMS.image === null) form = await imageForm({ after: (end) => void ends.push(end) })
    })
    after(async () => {
      for (const end of ends) await end()
    })
    for (const { name: title, run, skip, only } of ROWS) {
      if (only !== null && only !== name) continue
      const problem = FORMS[name] ?? skip
      test(problem === null ? title : `${title} (skipped: ${problem})`, { skip: problem !== null }, async (t) =>
        run(t, { ...(await household(t)), form }, name),
      )
    }
  })
