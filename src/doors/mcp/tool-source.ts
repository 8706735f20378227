import type { Tool } from './tool.ts'

/** Tools that come and go while a server runs. */
export interface ToolSource {
  /** The same objects until they change. */
  readonly tools: readonly Tool[]
  /** Called at every change from now on; the answer ends it. */
  onChanged(listener: () => void): () => void
}
