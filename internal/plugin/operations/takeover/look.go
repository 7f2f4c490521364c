package takeover

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/featuregate"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/afloat-project/afloat/internal/engine/wording"
	"github.com/afloat-project/afloat/internal/kinds/persistentpodstate"
	"github.com/afloat-project/afloat/internal/kinds/workloadspread"
	"github.com/afloat-project/afloat/internal/platform/features"
	"github.com/afloat-project/afloat/internal/plugin/commands/explain"
	"github.com/afloat-project/afloat/internal/plugin/operations/installation"
)

// backupAnnotation names the backup folder. It is set on the manager's Deployment when the manager is
// stopped, so that a run after an interruption finds the folder.
const backupAnnotation = "afloat.dev/takeover-backup"

// source is where flags come from: the other installation, either live or from the backup.
type source struct{ manager, daemon *unstructured.Unstructured }

func (s source) image() string {
	if s.manager == nil {
		return ""
	}
	image, _ := mainContainer(s.manager)["image"].(string)
	return image
}

// kindInUse is a kind of the project's groups in the cluster.
type kindInUse struct {
	definition *unstructured.Unstructured
	name       string
	objects    int64
	served     bool // served by the project
}

// lockName is the namespace and name of a manager's lock.
type lockName struct{ namespace, name string }

// seen is the result of the first step.
type seen struct {
	// manager is the live Deployment; source is the other installation.
	manager *unstructured.Unstructured
	source  source
	// carriedManager and carriedDaemon are what the other installation hands over.
	carriedManager, carriedDaemon carried
	// used are those gates of needUse that are in use.
	used  map[featuregate.Feature]bool
	lock  lockName
	kinds []kindInUse
	// resumed means that a takeover was begun before, so that conversion may not be answered at the moment.
	resumed bool
	// refusals are kinds and entries in use that nobody would serve. dropped are entries that go because
	// nobody needs them.
	refusals, dropped []string
	// against are other reasons to refuse the takeover.
	against []string
}

// served returns the definitions in the manifests by name.
func (t *takeover) served() map[string]*unstructured.Unstructured {
	served := map[string]*unstructured.Unstructured{}
	for _, object := range t.manifests {
		if object.GetKind() == installation.Definitions.Kind {
			served[object.GetName()] = object
		}
	}
	return served
}

func groupKind(kind string) schema.GroupKind {
	return schema.GroupKind{Group: "apps.kruise.io", Kind: kind}
}

// findManager finds the Deployment of the manager, and with it the namespace.
func (t *takeover) findManager(ctx context.Context) (*unstructured.Unstructured, error) {
	if t.choice.Namespace != "" {
		manager, err := installation.Get(ctx, t.client, installation.Deployments, t.choice.Namespace,
			installation.Manager)
		if err == nil && manager == nil {
			manager, err = t.removedManager(ctx)
		}
		if err == nil && manager == nil {
			err = fmt.Errorf("there is no Deployment %s in namespace %s", installation.Manager,
				t.choice.Namespace)
		}
		return manager, err
	}

	var found []*unstructured.Unstructured
	err := installation.Each(ctx, t.client, installation.Deployments,
		func(d *unstructured.Unstructured) error {
			found = append(found, d.DeepCopy())
			return nil
		}, client.MatchingFields{"metadata.name": installation.Manager})

	switch {
	case err != nil:
		return nil, err
	case len(found) == 0:
		manager, err := t.removedManager(ctx)
		if err == nil && manager == nil {
			err = fmt.Errorf("there is no Deployment %s, so there is nothing to take over: install Afloat as the manual says. --backup names the "+
				"folder if a takeover was interrupted", installation.Manager)
		}
		return manager, err
	case len(found) > 1:
		return nil, fmt.Errorf("there are %d Deployments %s: --manager-namespace says which one is meant",
			len(found), installation.Manager)
	}
	t.choice.Namespace = found[0].GetNamespace()

	return found[0], nil
}

// removedManager returns the manager as an interrupted run left it, if its backup exists: scaled to zero, and
// then deleted because the new Deployment has another selector. The result has no resourceVersion.
func (t *takeover) removedManager(ctx context.Context) (*unstructured.Unstructured, error) {
	if t.backup == "" {
		return nil, nil
	}

	saved, err := t.backupOf(ctx)
	if err != nil || saved == nil || t.choice.Namespace != "" && t.choice.Namespace != saved.Namespace {
		return nil, err
	}

	manager := saved.find(installation.Deployments, installation.Manager)
	if manager == nil {
		return nil, nil
	}

	t.choice.Namespace = saved.Namespace
	manager.SetResourceVersion("")
	return manager, errors.Join(unstructured.SetNestedField(manager.Object, int64(0), "spec", "replicas"),
		unstructured.SetNestedField(manager.Object, t.backup, "metadata", "annotations", backupAnnotation))
}

// look inspects the cluster and reports what it finds.
func (t *takeover) look(ctx context.Context) (*seen, error) {
	s := &seen{}
	var err error
	if s.manager, err = t.findManager(ctx); err != nil {
		return nil, err
	}
	if t.manifests, err = installation.Manifests(t.choice); err != nil {
		return nil, err
	}
	if installation.Find(t.manifests, installation.Deployments.Kind, installation.Manager) == nil {
		return nil, fmt.Errorf("the manifests have no Deployment %s", installation.Manager)
	}
	if err := t.lookAtManager(ctx, s); err != nil {
		return nil, err
	}

	manager, _, err := t.foreseen(s)
	if err != nil {
		return nil, err
	}

	t.flags = texts(mainContainer(manager)["args"])
	if t.choice.Distributes = turnsOn(manager, features.ResourceDistributionGate); t.choice.Distributes {
		if t.manifests, err = installation.Manifests(t.choice); err != nil {
			return nil, err
		}
	}

	if s.source.daemon == nil && !turnsOn(manager, features.KruiseDaemon) {
		t.say("there are no node daemons, and KruiseDaemon is off: none are installed")
		t.manifests = slices.DeleteFunc(t.manifests,
			func(o *unstructured.Unstructured) bool { return o.GetKind() == installation.DaemonSets.Kind })
	}

	if turnsOn(manager, features.DeletionProtectionForCRDCascadingGate) {
		t.say("%s is on: grant the manager the right to list the objects of the definitions that it protects; without it they cannot be deleted",
			features.DeletionProtectionForCRDCascadingGate)
	}
	if err := t.lookAtLists(ctx); err != nil {
		return nil, err
	}
	if err := t.lookAtKinds(ctx, s); err != nil {
		return nil, err
	}
	if err := t.lookAtEntries(ctx, s); err != nil {
		return nil, err
	}

	return s, t.lookAhead(ctx, s)
}

// lookAtManager reads the other installation, or its backup if it has been replaced already.
func (t *takeover) lookAtManager(ctx context.Context, s *seen) error {
	begun := s.manager.GetAnnotations()[backupAnnotation]
	if begun != "" && t.backup == "" {
		t.backup = begun
	}
	if t.backup == "" {
		t.backup = t.folder()
	}

	saved, err := t.backupOf(ctx)
	if err == nil && saved != nil && begun == "" && !installation.IsOurs(s.manager) {
		if stale, err := t.stale(ctx, saved); err != nil {
			return err
		} else if len(stale) > 0 {
			return fmt.Errorf("nothing was changed: the backup in %s is not of what is there now: %s: name another folder with --backup; if a "+
				"way back was interrupted, end it first with: kubectl afloat takeover --back --backup %s",
				t.backup, most(stale), t.backup)
		}
	}

	switch {
	case err != nil:
		return err
	case saved != nil:
		s.resumed = begun != "" || installation.IsOurs(s.manager)
		s.source = source{saved.find(installation.Deployments, installation.Manager),
			saved.find(installation.DaemonSets, installation.Daemon)}
		t.say("a takeover was begun; what was there before is in %s", t.backup)
	case begun != "":
		return fmt.Errorf(
			"a takeover was begun, and what was there before was saved in %s, which is not here: "+
				"name the folder with --backup", begun)
	case installation.IsOurs(s.manager):
		return fmt.Errorf("%s is Afloat's already: there is nothing to take over. --backup names the folder if a takeover was interrupted",
			installation.Of(s.manager))
	default:
		s.source.manager = s.manager
		if s.source.daemon, err = installation.Get(ctx, t.client, installation.DaemonSets, t.choice.Namespace,
			installation.Daemon); err != nil {
			return err
		}
	}
	if s.source.manager == nil {
		return fmt.Errorf("the folder %s has no Deployment %s", t.backup, installation.Manager)
	}

	replicas, _, _ := unstructured.NestedInt64(s.source.manager.Object, "spec", "replicas")
	t.say("manager: %s, image %s, %s", installation.Of(s.source.manager), s.source.image(),
		wording.Count(int(replicas), "replica"))
	how, err := t.read(ctx, s, saved)
	if err != nil {
		return err
	}

	s.carriedManager = carry(s.source.manager,
		installation.Find(t.manifests, installation.Deployments.Kind, installation.Manager), how)
	s.lock = lockOf(s.source.manager, t.choice.Namespace)
	t.sayCarried("manager", s.carriedManager)
	if s.source.daemon != nil {
		image, _ := mainContainer(s.source.daemon)["image"].(string)
		t.say("node daemon: %s, image %s", installation.Of(s.source.daemon), image)
		s.carriedDaemon = carry(s.source.daemon,
			installation.Find(t.manifests, installation.DaemonSets.Kind, installation.Daemon), how)
		t.sayCarried("node daemon", s.carriedDaemon)
	}

	if release := s.source.manager.GetAnnotations()["meta.helm.sh/release-name"]; release != "" {
		t.say("Helm release %s in namespace %s still lists the objects: never upgrade, roll back or uninstall it while Afloat is installed",
			release, s.source.manager.GetAnnotations()["meta.helm.sh/release-namespace"])
	}
	if err := t.lookAtOtherDaemons(ctx); err != nil {
		return err
	}

	return t.lookAtSecret(ctx)
}

// lookAtLists names the kinds that users list for WorkloadSpreads and PersistentPodStates. The other manager
// may list all objects of the cluster, but that of the project only those that it is granted.
func (t *takeover) lookAtLists(ctx context.Context) error {
	lists, err := installation.Get(ctx, t.client, schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
		t.choice.Namespace, workloadspread.ConfigMapName)
	if err != nil || lists == nil {
		return err
	}

	for _, of := range [][2]string{{"WorkloadSpreads", workloadspread.AllowListKey},
		{"PersistentPodStates", persistentpodstate.AllowListKey}} {
		list, err := workloadspread.ParseListAt(of[1], installation.Text(lists.Object, "data", of[1]))
		if err != nil {
			t.say("%v", err)
			continue
		}

		var names []string
		for _, kind := range list.Workloads {
			for _, of := range append([]schema.GroupVersionKind{kind.GroupVersionKind},
				kind.SubResources...) {
				if name := of.GroupKind().String(); !slices.Contains(names, name) {
					names = append(names, name)
				}
			}
		}
		if len(names) > 0 {
			t.say("ConfigMap %s lists kinds for %s. Grant the manager the rights to get, list and watch them, and to get their scale; the "+
				"other manager may list everything: %s",
				workloadspread.ConfigMapName, of[0], strings.Join(names, ", "))
		}
	}

	return nil
}

// lookAtOtherDaemons names the node daemons that stay unchanged, such as those for Windows.
func (t *takeover) lookAtOtherDaemons(ctx context.Context) error {
	return installation.Each(ctx, t.client, installation.DaemonSets,
		func(set *unstructured.Unstructured) error {
			if account := installation.Text(set.Object, "spec", "template", "spec",
				"serviceAccountName"); set.GetName() != installation.Daemon &&
				(account == installation.Daemon ||
					strings.HasPrefix(set.GetName(), installation.Daemon+"-")) {
				t.say("%s stays as it is, and goes on running with the rights of Afloat's node daemons: Afloat has none for its nodes. Delete it when "+
					"nothing on them needs it", installation.Of(set))
			}
			return nil
		}, client.InNamespace(t.choice.Namespace))
}

// read decides how flags are interpreted. What it depends on is taken from the backup if there is one,
// because it changes during a takeover.
func (t *takeover) read(ctx context.Context, s *seen, saved *backup) (*reading, error) {
	var definitions []*unstructured.Unstructured
	var err error
	if saved != nil {
		for _, object := range saved.objects {
			if object.GetKind() == installation.Definitions.Kind {
				definitions = append(definitions, object)
			}
		}
		s.used = saved.Used
	} else {
		if err := installation.Each(ctx, t.client, installation.Definitions,
			func(definition *unstructured.Unstructured) error {
				if installation.OfProject(definition) {
					definitions = append(definitions, definition.DeepCopy())
				}
				return nil
			}); err != nil {
			return nil, err
		}
		s.used, err = t.usedGates(ctx)
	}

	r := newReading(s.source.image(), definitions)
	r.used = s.used
	return r, err
}

func (t *takeover) sayCarried(whose string, c carried) {
	if len(c.Flags) > 0 {
		t.say("flags of the %s carried over: %s", whose, strings.Join(c.Flags, " "))
	}
	for _, note := range c.Notes {
		t.say("the %s's %s", whose, note)
	}
}

// lockOf returns the lock that the flags of a manager name.
func lockOf(manager *unstructured.Unstructured, namespace string) lockName {
	lock := lockName{namespace, installation.Lock}
	for _, flag := range carry(manager, nil, nil).Flags {
		switch name, value, _ := strings.Cut(flag, "="); {
		case name == "--leader-election-namespace" && value != "":
			lock.namespace = value
		case name == "--leader-election-id" && value != "":
			lock.name = value
		}
	}
	return lock
}

func (t *takeover) lookAtSecret(ctx context.Context) error {
	secret, err := installation.Get(ctx, t.client, installation.Secrets, t.choice.Namespace,
		installation.Secret)
	switch {
	case apierrors.IsForbidden(err):
		t.say("certificates: you may not look at Secret %s", installation.Secret)
		return nil
	case err != nil:
		return err
	case secret == nil:
		t.say("certificates: there is no Secret %s; Afloat makes one", installation.Secret)
	default:
		t.say("certificates: Secret %s is there, and goes on being used", installation.Secret)
	}

	return nil
}

// rehearsed are the kinds whose passes can be rehearsed, which are all kinds that write pods.
var rehearsed = []string{"CloneSet", "DaemonSet", "SidecarSet", "StatefulSet"}

// lookAhead rehearses the next pass over each workload, and names the pods that it would touch.
func (t *takeover) lookAhead(ctx context.Context, s *seen) error {
	// The first run has reported it, and it cannot be known while no manager serves.
	if s.resumed {
		return nil
	}

	asked, moving := 0, 0
	for _, kind := range s.kinds {
		if !slices.Contains(rehearsed, kind.name) || !kind.served ||
			installation.Text(kind.definition.Object, "spec", "group") != "apps.kruise.io" {
			continue
		}

		if err := installation.Each(ctx, t.client, installation.StoredKind(kind.definition),
			func(object *unstructured.Unstructured) error {
				e, err := t.rehearse(ctx, kind.name,
					types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()})
				if err != nil {
					if gone, getErr := installation.Get(ctx, t.client, object.GroupVersionKind(),
						object.GetNamespace(), object.GetName()); getErr == nil && gone == nil {
						return nil // deleted meanwhile
					}
					return fmt.Errorf("rehearsing what Afloat does with %s: %w", installation.Of(object), err)
				}
				asked++
				if touched := touchedBy(e); len(touched) > 0 {
					moving++
					t.say("%s is under way and goes on: %s", e.Of(), most(touched))
				}
				return nil
			}); err != nil {
			return err
		}
	}

	t.say("rehearsed: %s, of which %d would have pods touched", wording.Count(asked, "workload"), moving)
	return nil
}

// touchedBy returns the pods that the next pass changes or creates.
func touchedBy(e *explain.Explanation) []string {
	var touched []string
	for _, pod := range e.Pods {
		if pod.State == explain.Next {
			touched = append(touched,
				fmt.Sprintf("pod %s: %s", strings.TrimPrefix(pod.Namespace+"/"+pod.Name, "/"), pod.Message))
		}
	}
	if e.Create > 0 {
		touched = append(touched, wording.Count(e.Create, "new pod"))
	}
	return touched
}

// reasonsAgainst returns an error if the takeover must not be made.
func (t *takeover) reasonsAgainst(s *seen) error {
	if len(s.against) > 0 {
		return fmt.Errorf("nothing was changed: %s", strings.Join(s.against, "; "))
	}
	if len(s.refusals) == 0 {
		return nil
	}

	text := strings.Join(s.refusals, "; ")
	if t.allowUnserved {
		t.say("nobody acts on these from now on: %s", text)
		return nil
	}

	return fmt.Errorf("nothing was changed: Afloat does not serve what is in use: %s (--allow-unserved goes on nevertheless)",
		text)
}

// mostNames limits the length of printed lists.
const mostNames = 20

// most joins a list, cut off at mostNames.
func most(items []string) string {
	if len(items) > mostNames {
		return fmt.Sprintf("%s, and %d more", strings.Join(items[:mostNames], "; "), len(items)-mostNames)
	}
	return strings.Join(items, "; ")
}

func orNone(items []string) string {
	if len(items) == 0 {
		return "none"
	}
	return strings.Join(items, ", ")
}
