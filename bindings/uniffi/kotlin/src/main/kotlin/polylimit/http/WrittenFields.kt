package polylimit.http

/** The fields that the limits of one request have written to its response. Those that the application has replaced are left alone. */
public class WrittenFields {
    private var written: Map<String, String>? = null

    /**
     * Writes fields in place of those that were written before.
     *
     * @param read reads a field of the response; null when it has none.
     * @param write sets a field of the response; with null in place of a value, removes it.
     */
    public fun replace(
        fields: Map<String, String>,
        read: (String) -> String?,
        write: (String, String?) -> Unit,
    ) {
        val before = written
        for (name in fields.keys + before?.keys.orEmpty()) {
            if (before == null || read(name) == before[name]) write(name, fields[name])
        }
        written = fields
    }
}
