package migrate

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/afloat-project/afloat/internal/plugin/plugintest"
)

// Two people migrate a StatefulSet. The first one's command died after it had kept the manifest, and the image
// was changed after that; the second one's command died after it had deleted the StatefulSet without its pods.
// Now the first one runs the command again: the pods must not go back to the old image.
func TestAnOlderManifestInAFileDoesNotRollPodsBack(t *testing.T) {
	c := newCluster(t, "v1beta1", nativeSet)
	args := func(file string) []string { return append(append([]string{}, c.args...), "--backup="+file) }

	// The first one dies with the deletion, which does not arrive.
	c.Before = func(r plugintest.Request) error {
		if r.Method == http.MethodDelete && !strings.Contains(r.Query, "dryRun=All") && len(r.Body) > 0 &&
			!strings.Contains(r.Body, "dryRun") {
			return errors.New("died")
		}
		return nil
	}
	if err := c.Run(t, quick, args("first.yaml")...).Err; err == nil {
		t.Fatal("the first one was not interrupted")
	}
	if saved, err := load("first.yaml"); err != nil || saved == nil {
		t.Fatalf("the first one kept no manifest: %v", err)
	}
	c.Before = nil

	// The rollout of a new image, which ends.
	c.changeSource(func(o map[string]any) {
		containers, _, _ := unstructured.NestedSlice(o, "spec", "template", "spec", "containers")
		containers[0].(map[string]any)["image"] = "new"
		_ = unstructured.SetNestedSlice(o, containers, "spec", "template", "spec", "containers")
	})

	c.Put(t, "{apiVersion: apps/v1, kind: ControllerRevision, metadata: {name: db-newer, labels: {controller-revision-hash: db-newer}, "+
		"ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: db, controller: true, uid: "+string(c.Get(t, c.source, "db").GetUID())+"}]}, revision: 3}")
	for i := 1; i <= 3; i++ {
		c.Change(t, "pods", fmt.Sprint("db-", i), func(o map[string]any) {
			_ = unstructured.SetNestedField(o, "db-newer", "metadata", "labels", "controller-revision-hash")
		})
	}

	// The second one dies with the creation.
	c.Before = func(r plugintest.Request) error {
		if r.Method == http.MethodPost && !strings.Contains(r.Query, "dryRun=All") {
			return errors.New("died")
		}
		return nil
	}
	if err := c.Run(t, quick, args("second.yaml")...).Err; err == nil {
		t.Fatal("the second one was not interrupted")
	}
	c.Before = nil

	err := c.Run(t, quick, args("first.yaml")...).Err
	if err == nil || !strings.Contains(err.Error(), "is of revision db-newer, and the manifest of revision db-new") {
		t.Errorf("first one again: got %v, want an error about the revisions", err)
	}
	if c.Get(t, c.target, "db") != nil {
		t.Error("the StatefulSet was created from the older manifest")
	}
	if err := c.Run(t, quick, args("second.yaml")...).Err; err != nil {
		t.Errorf("second one again: got %v, want no error", err)
	}
}
