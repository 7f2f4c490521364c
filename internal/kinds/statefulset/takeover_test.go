package statefulset

import "testing"

// TestCurrentRevisionWithoutStatus shows ASTS-085: a set that was just taken over, or came back from a
// backup, has an empty status. A pod that is lost at that moment comes back as those beside it are.
func TestCurrentRevisionWithoutStatus(t *testing.T) {
	for name, tt := range map[string]struct {
		current string
		pods    []string // images by ordinal, "" for none
		options []option
		want    string // the image of the current revision
		does    []string
	}{
		"named by the status":              {"a:1", []string{"a:0", "", "a:2"}, []option{partition(3)}, "a:1", []string{"+1 a:1"}},
		"no status, a pod is lost":         {"", []string{"a:0", "", "a:2"}, []option{partition(2)}, "a:0", []string{"+1 a:0"}},
		"the newest of those carried":      {"", []string{"a:0", "a:1", ""}, []option{partition(3)}, "a:1", []string{"+2 a:1"}},
		"the one named is gone":            {"gone", []string{"a:1", "", "a:2"}, []option{partition(2)}, "a:1", []string{"+1 a:1"}},
		"every pod has the update's":       {"", []string{"a:2", "", "a:2"}, []option{partition(3)}, "a:2", []string{"+1 a:2"}},
		"no pod at all":                    {"", []string{"", "a:2", "a:2"}, []option{partition(3)}, "a:2", []string{"+0 a:2"}},
		"beyond the partition, all is new": {"", []string{"a:1", "a:1", ""}, []option{partition(2)}, "a:1", []string{"+2 a:2"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 3, append(tt.options, inParallel)...)
			w.at("a:0")
			w.at("a:1")
			w.at("a:2")
			w.revisions["gone"] = "web-gone"
			w.Set.Status.CurrentRevision = w.revisions[tt.current]
			for ordinal, image := range tt.pods {
				if image != "" {
					w.pod(ordinal, image)
				}
			}
			if got := Make(w.Snapshot).Status.CurrentRevision; got != w.revisions[tt.want] {
				t.Errorf("current revision %s of %v, want that of %s", got, w.revisions, tt.want)
			}
			w.expect(tt.does...)
		})
	}
}
