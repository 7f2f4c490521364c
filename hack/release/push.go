package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/registry"
)

// push puts the images and the chart of a release that was made into its repository, with the logins that
// docker and helm have. A tag that is there already is never given to something else.
func (r *release) push(ctx context.Context) error {
	if err := r.verify(); err != nil {
		return fmt.Errorf("the release in %s: %w", r.out, err)
	}
	if err := r.readDate(); err != nil {
		return err
	}

	list, err := os.ReadFile(r.path(imagesFile))
	if err != nil {
		return err
	}

	for line := range strings.Lines(string(list)) {
		image, digest, _ := strings.Cut(strings.TrimSpace(line), "@")
		if !strings.HasPrefix(image, r.repository+"/") {
			return fmt.Errorf("the release was made for another REPOSITORY: %s is not in %s",
				image, r.repository)
		}
		if err := r.pushImage(ctx, image, digest); err != nil {
			return fmt.Errorf("push %s: %w", image, err)
		}
		r.say("%s@%s", image, digest)
	}

	charts, err := filepath.Glob(r.path("*.tgz"))
	if err != nil {
		return err
	}

	for _, file := range charts {
		if err := r.pushChart(ctx, file); err != nil {
			return fmt.Errorf("push %s: %w", file, err)
		}
	}

	return nil
}

// readDate sets the time of the release from its provenance, so that the chart is the same in every registry.
func (r *release) readDate() error {
	text, err := os.ReadFile(r.path(provenanceFile))
	if err != nil {
		return err
	}

	var statement struct {
		Predicate struct {
			BuildDefinition struct {
				ExternalParameters struct{ SourceDateEpoch int64 }
			}
		}
	}
	if err := json.Unmarshal(text, &statement); err != nil {
		return fmt.Errorf("read %s: %w", provenanceFile, err)
	}

	r.date = time.Unix(statement.Predicate.BuildDefinition.ExternalParameters.SourceDateEpoch, 0).UTC()
	return nil
}

func (r *release) pushImage(ctx context.Context, image, digest string) error {
	tag, err := name.NewTag(image)
	if err != nil {
		return err
	}

	published, err := publishedAs(ctx, tag)
	if err != nil || published == digest {
		return err
	}
	if published != "" {
		return fmt.Errorf("it is there already, as %s: a release is not changed", published)
	}

	dir, err := os.MkdirTemp("", "layout-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	program, version, _ := strings.Cut(strings.TrimPrefix(image, r.repository+"/"), ":")
	index, err := readLayout(r.path(fmt.Sprintf("afloat-%s_%s_image.tar", program, version)), dir)
	if err != nil {
		return err
	}
	if got, err := index.Digest(); err != nil || got.String() != digest {
		return errors.Join(fmt.Errorf("the archive has %s instead of %s", got, digest), err)
	}

	return remote.WriteIndex(tag, index, login(ctx)...)
}

// publishedAs is the digest under which a registry has a name; empty if it says that it has none. Any other
// answer is an error, since it may have one.
func publishedAs(ctx context.Context, tag name.Tag) (string, error) {
	there, err := remote.Head(tag, login(ctx)...)
	refused := &transport.Error{}
	if errors.As(err, &refused) && refused.StatusCode == http.StatusNotFound {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	return there.Digest.String(), nil
}

func login(ctx context.Context) []remote.Option {
	return []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
}

// pushChart puts the chart beside the images, for helm install oci://REPOSITORY/charts/NAME.
func (r *release) pushChart(ctx context.Context, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}

	loaded, err := loader.LoadFile(file)
	if err != nil {
		return err
	}

	repository, err := name.NewRepository(r.repository)
	if err != nil {
		return err
	}

	options := []registry.ClientOption{}
	if repository.Registry.Scheme() == "http" { // on this machine
		options = append(options, registry.ClientOptPlainHTTP())
	}
	client, err := registry.NewClient(options...)
	if err != nil {
		return err
	}

	place := fmt.Sprintf("%s/charts/%s:%s", r.repository, loaded.Name(), loaded.Metadata.Version)
	tag, err := name.NewTag(strings.ReplaceAll(place, "+", "_")) // as Helm writes it
	if err != nil {
		return err
	}

	published, err := publishedAs(ctx, tag)
	if err != nil {
		return err
	}
	if published != "" {
		there, err := client.Pull(place, registry.PullOptWithChart(true))
		if err != nil {
			return err
		}
		if string(there.Chart.Data) != string(data) {
			return fmt.Errorf("%s is there already, and differs: a release is not changed", place)
		}
		r.say("%s@%s", place, there.Manifest.Digest)
		return nil
	}

	pushed, err := client.Push(data, place,
		registry.PushOptCreationTime(r.date.Format("2006-01-02T15:04:05Z")))
	if err != nil {
		return err
	}

	r.say("%s@%s", place, pushed.Manifest.Digest)
	return nil
}
