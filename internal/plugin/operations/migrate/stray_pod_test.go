package migrate

import (
	"testing"
)

// A pod without a controller has the labels of the StatefulSet and a name that begins like its pods: a copy to debug
// (kubectl debug db-1 --copy-to=db-debug --keep-labels), or one by hand. Either the migration is refused before anything is done, or it
// goes through. It must not delete the StatefulSet and then refuse to create the other one, so that nobody looks after the pods.
func TestAPodOfNobodyDoesNotStopAMigrationHalfway(t *testing.T) {
	for name, manifest := range map[string]string{"StatefulSet": nativeSet, "back": ownSet, "DaemonSet": nativeDaemons} {
		hash := "db-new" // a copy may keep all labels; that of a DaemonSet would be adopted
		if name == "DaemonSet" {
			hash = ""
		}
		c := newCluster(t, "v1beta1", manifest)
		c.Put(t, "{apiVersion: v1, kind: Pod, metadata: {name: db-debug, labels: {app: db, controller-revision-hash: '"+hash+"'}}, "+
			"status: {phase: Running, conditions: [{type: Ready, status: 'True'}]}}")
		err := c.Run(t, quick, c.args...).Err
		if c.Get(t, c.source, "db") == nil && c.Get(t, c.target, "db") == nil {
			t.Errorf("%s: it is deleted, and the other one is not created: nobody looks after its pods; the command said: %v", name, err)
		}
		if err = c.Run(t, quick, c.args...).Err; c.Get(t, c.source, "db") == nil && c.Get(t, c.target, "db") == nil {
			t.Errorf("%s: the same command again: %v", name, err)
		}
	}
}
