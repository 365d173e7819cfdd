// Azure's own client: node azure.js URL ACCOUNT KEY make | anew | put NAME FILE | get NAME | list
const { BlobServiceClient, StorageSharedKeyCredential } = require("@azure/storage-blob");

async function main([url, account, key, action, name, file]) {
    const credential = new StorageSharedKeyCredential(account, key);
    const container = new BlobServiceClient(url, credential).getContainerClient("bucket");
    if (action === "anew") await container.delete();
    if (action === "make" || action === "anew") return container.create();
    if (action === "put") return container.getBlockBlobClient(name).uploadFile(file);
    if (action === "get") return process.stdout.write(await container.getBlobClient(name).downloadToBuffer());
    for await (const blob of container.listBlobsFlat()) console.log(blob.name);
}

main(process.argv.slice(2)).catch((error) => {
    console.error(error.message);
    process.exit(1);
});
