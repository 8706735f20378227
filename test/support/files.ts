import { systemClock } from '../../src/base/clock.ts'
import { TimeSlicer, type TimeSlice } from '../../src/base/time-slices.ts'
import * as patch from '../../src/fs/apply-patch.ts'
import * as edit from '../../src/fs/edit-file.ts'
import * as glob from '../../src/fs/glob.ts'
import * as list from '../../src/fs/read.ts'
import type { FilePermit } from '../../src/policy/local/file-permit.ts'

/** The time slice of a client without competitors. */
export const alone = (signal: AbortSignal = new AbortController().signal): TimeSlice => new TimeSlicer({ clock: systemClock }).share(signal)

/** The slow file operations, called by a client without competitors. */
export const editFile = (permit: FilePermit, options: edit.EditRequest): Promise<edit.Edited> => edit.editFile(permit, options, alone())
export const globFiles = (permit: FilePermit, options: glob.GlobOptions): Promise<glob.Matches> => glob.globFiles(permit, options, alone())
export const listDirectory = (permit: FilePermit, options: list.ListOptions = {}): Promise<list.Listing> =>
  list.listDirectory(permit, options, alone())
export const applyPatch = (...args: PatchArguments): Promise<patch.PatchResult> => patch.applyPatch(...args, alone())

type PatchArguments = [
  changes: Parameters<typeof patch.applyPatch>[0],
  permitFor: patch.PermitFor,
  announce: (paths: readonly string[]) => Promise<void>,
]
