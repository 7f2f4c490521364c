package watches

import (
	"context"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// changesTime is for how many seconds changes are watched at once. An API server sends a bookmark two seconds before it ends a watch.
const changesTime = 3

// watchChanges reads what changed after the version that the informer had, from a watch of its own, and sets changed as soon as that has
// told of the version that was stored, by an object or a bookmark. It costs the same however many objects there are. An API
// server that has no such bookmark, or does not know that version any more, leaves the answer to the list.
func (g *gap) watchChanges(ctx context.Context, version string) {
	changed := map[string]string{}
	for ctx.Err() == nil {
		events, err := g.source.WatchWithContext(ctx, metav1.ListOptions{
			ResourceVersion: version, AllowWatchBookmarks: true, TimeoutSeconds: ptr.To(int64(changesTime)),
		})
		if err != nil {
			return
		}
		over := false
		for event := range events.ResultChan() { // to its end: some watches wait for a reader
			key, err := toolscache.MetaNamespaceKeyFunc(event.Object)
			switch {
			case over:
				continue
			case err != nil, event.Type == apiwatch.Error:
				over = true
			case event.Type == apiwatch.Deleted:
				changed[key] = ""
			case event.Type != apiwatch.Bookmark:
				changed[key] = versionOf(event.Object)
			}
			if !over {
				version = versionOf(event.Object)
				over = atLeast(version, g.stored)
			}
			if over {
				events.Stop()
			}
		}
		if over {
			if atLeast(version, g.stored) {
				g.changed.Store(&changed)
			}
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(currentAgain):
		}
	}
}

// contradicts reports whether objects that were read are not those of the history that the informer shows up to the version that it
// had: etcd was restored, and a watch says nothing of what the new history had before that version.
func (g *gap) contradicts(objects map[string]string, had string) bool {
	for key, version := range objects {
		object, found, err := g.store.GetByKey(key)
		switch has := versionOf(object); {
		case !atLeast(had, version), err != nil: // it changed afterwards
		case !found && g.version() == had, found && has != version && !Older(had, has):
			return true
		}
	}
	return false
}
