package imagepull

import (
	"context"
	"iter"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	pulljobs "github.com/afloat-project/afloat/internal/kinds/imagepull"
	"github.com/afloat-project/afloat/internal/node/runtime"
)

// ofNode is whose turn it is when the credentials of the node itself are tried. No namespace has this name.
const ofNode = "/"

// rounds are the credentials for one pull. The tags of an image share its secrets although their jobs may be in several
// namespaces, a tag may have jobs of several, each of them may have thousands of secrets, and an attempt has little time.
// So namespaces take turns: in each round one more credential of each is tried, for which one more secret is read if it has
// none left. Most pulls succeed with the first credential.
type rounds struct {
	image string
	jobs  []string
	// owners are the namespaces of the jobs, or "" for a tag without jobs.
	owners []string
	// order has the owners, and "" at the end.
	order []string
	// unread are the secrets by the namespace that the name of a copy tells, or "" if it tells none.
	unread map[string][]types.NamespacedName
	// untried are the credentials by the namespace of the jobs that may use them, or "" for a tag without jobs.
	untried map[string][]runtime.Auth
	sizes   map[string]int
	tried   map[runtime.Auth]bool
	// turn is whose credential was returned last, and broken whose have failed for another reason than that they were rejected.
	turn   string
	broken map[string]bool
}

// newRounds returns the rounds of a pull of an image with a tag of these jobs. Copies that are for others by their names are
// left out, and all of them for a tag without jobs.
func newRounds(names []types.NamespacedName, jobs []string, image string) *rounds {
	owners := namespacesOf(jobs)
	if len(owners) == 0 {
		owners = []string{""}
	}
	r := &rounds{image: image, jobs: jobs, owners: owners, order: slices.Compact(append(slices.Clone(owners), "")),
		unread: map[string][]types.NamespacedName{}, untried: map[string][]runtime.Auth{}, sizes: map[string]int{},
		tried: map[runtime.Auth]bool{}, broken: map[string]bool{}}
	marks := map[string]string{"": ""}
	for _, namespace := range owners {
		marks[pulljobs.CopyMark(namespace)] = namespace
	}
	for _, name := range names {
		if of, mine := marks[pulljobs.CopyMarkIn(name.Name)]; mine {
			r.unread[of] = append(r.unread[of], name)
		}
	}
	return r
}

// all returns the credentials in their order and without duplicates. A namespace that has no more goes on with those of the
// node, as it would if no other asked for the tag: what others have must not keep it from an image that is for everybody, or
// for the node.
func (r *rounds) all(
	ctx context.Context, read func(types.NamespacedName) (cachedSecret, error), node func() []runtime.Auth,
) iter.Seq2[runtime.Auth, error] {
	return func(yield func(runtime.Auth, error) bool) {
		for joined := false; !joined || slices.ContainsFunc(r.order, r.has); {
			for _, of := range r.order {
				if len(r.untried[of]) == 0 && len(r.unread[of]) > 0 {
					name := r.unread[of][0]
					r.unread[of] = r.unread[of][1:]
					secret, err := read(name)
					if err != nil {
						yield(runtime.Auth{}, err)
						return
					}
					r.add(ctx, name, &secret)
				}
				// Namespaces may have the same.
				left := slices.DeleteFunc(r.untried[of], func(auth runtime.Auth) bool { return r.tried[auth] })
				if r.untried[of] = left; len(left) > 0 {
					r.turn, r.untried[of], r.tried[left[0]] = of, left[1:], true
					if !yield(left[0], nil) {
						return
					}
				}
			}
			if !joined && r.oneHasNone() {
				joined, r.order, r.untried[ofNode] = true, append(r.order, ofNode), node()
			}
		}
	}
}

// has reports whether there is something left for the turns of a namespace.
func (r *rounds) has(of string) bool { return len(r.unread[of])+len(r.untried[of]) > 0 }

// oneHasNone reports whether one of the owners has no more credentials.
func (r *rounds) oneHasNone() bool {
	return !r.has("") && slices.ContainsFunc(r.owners, func(of string) bool { return !r.has(of) })
}

// allBroken reports whether no owner would pull without credentials, because its own, or those of the node, have failed for
// another reason than that they were rejected. One tenant can let its own fail, and must not keep others from a pull.
func (r *rounds) allBroken() bool {
	return r.broken[ofNode] || !slices.ContainsFunc(r.owners, func(of string) bool { return !r.broken[of] })
}

// add adds the credentials of a secret, if the jobs may use it. Missing and unusable secrets have none.
func (r *rounds) add(ctx context.Context, name types.NamespacedName, cached *cachedSecret) {
	if cached.secret == nil || !cached.serves(r.jobs) {
		return
	}
	found, err := fromSecret(cached.secret, r.image)
	if err != nil {
		return // it was parsed when it was read
	}
	of := cached.namespace
	if !slices.Contains(r.order, of) {
		of = ""
	}
	for _, auth := range found {
		if r.tried[auth] || slices.Contains(r.untried[of], auth) {
			continue
		}
		size := overhead + len(auth.Username) + len(auth.Password) + len(auth.IdentityToken) + len(auth.RegistryToken)
		if r.sizes[of]+size > mostTried {
			klog.FromContext(ctx).Info("Not all credentials for an image are tried, because they are too large",
				"image", r.image, "secret", name)
			break
		}
		r.untried[of] = append(r.untried[of], auth)
		r.sizes[of] += size
	}
}

// namespacesOf returns the namespaces of jobs.
func namespacesOf(jobs []string) []string {
	var all []string
	for _, job := range jobs {
		if namespace, _, _ := strings.Cut(job, "/"); !slices.Contains(all, namespace) {
			all = append(all, namespace)
		}
	}
	return all
}
